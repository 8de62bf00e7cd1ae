"""Scaffold for `rlcatalog new`: a working plugin package that passes the conformance kit.

Templates for the files are in `templates/`, with one folder for each kind of part and one for all
kinds. `kinds.toml` lists the kinds.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlcatalog import __version__
from rlcatalog.errors import (
    DuplicateNameError,
    FolderTakenError,
    MissingExtraError,
    UnknownNameError,
    nearest,
    output_errors,
    shown,
)
from rlcatalog.internals import (
    RELEASED,
    installed_version,
    may_claim,
    missing_distributions,
    normalize,
    public_index,
)
from rlcatalog.plugins import install_hint

#: The frameworks for which there are templates.
FRAMEWORKS = ("torch", "tf")
#: What stands in place of a kind, for a package with parts of several kinds.
PACKAGE = "package"
#: Kind of part → the hook that declares it, and the class of its declarations.
_HOOKS = {
    "model": ("rlcatalog_models", "ModelSpec"),
    "action_dist": ("rlcatalog_action_dists", "ActionDistSpec"),
    "preprocessor": ("rlcatalog_preprocessors", "PreprocessorSpec"),
    "action_codec": ("rlcatalog_action_codecs", "ActionCodecSpec"),
    "filter": ("rlcatalog_filters", "FilterSpec"),
    "env_wrapper": ("rlcatalog_env_wrappers", "EnvWrapperSpec"),
    "command": ("rlcatalog_commands", "CommandSpec"),
}
#: Maximum length of a name, so that the lines in the package stay short.
LONGEST_NAME = 40

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


@dataclass(frozen=True)
class Key:
    """Config key in a generated package; its name is a suffix to the package's name."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Kind:
    """Kind of part that `rlcatalog new` writes.

    Attributes:
        part_kind: The part's kind, as named in the registry.
        about: Short description of the generated part.
        keys: The generated part's config keys.
        frameworks: Whether the part's code depends on a framework.
        suffix: Suffix that follows the package's name in the part's name.
    """

    part_kind: str
    about: str
    keys: tuple[Key, ...] = ()
    frameworks: bool = False
    suffix: str = ""


_TEMPLATES = Path(__file__).parent / "templates"
#: Contents of `templates/kinds.toml`: the kinds of part, and the purpose of each file in a package.
_TABLE = tomllib.loads((_TEMPLATES / "kinds.toml").read_text(encoding="utf-8"))


def _read_kind(entry: Mapping[str, Any]) -> Kind:
    keys = tuple(Key(**key) for key in entry.get("keys", ()))
    return Kind(**{**entry, "keys": keys})


KINDS = {name: _read_kind(entry) for name, entry in _TABLE["kinds"].items()}


@dataclass(frozen=True)
class _NewPart:
    """Part in a new package.

    Attributes:
        kind: A name in `KINDS`.
        folder: Its folder in the package; `""` for the only part of a package.
        module: Import name of the package or folder that contains its modules.
        part: Its name, with which its config keys begin, too.
        frameworks: The frameworks that its code supports; none if it needs none.
    """

    kind: str
    folder: str
    module: str
    part: str
    frameworks: Sequence[str]

    @property
    def about(self) -> str:
        """Short description of the part."""
        return KINDS[self.kind].about

    @property
    def keys(self) -> list[Key]:
        """Its config keys, with their full names."""
        keys = KINDS[self.kind].keys
        return [replace(key, name=f"{self.part}_{key.name}") for key in keys]


def package_files(
    kind: str,
    name: str,
    frameworks: Sequence[str] | None = None,
    contents: Sequence[str] = (),
) -> dict[str, str]:
    """Return the files of a new package without writing them.

    Args:
        kind: A name in `KINDS`; or `"package"`, for a package with several parts.
        name: The distribution's name.
        frameworks: The names from `FRAMEWORKS` that the parts support. If None, all.
        contents: The kinds of the parts, for `"package"`.

    Returns:
        The files' texts, keyed by path within the package's folder.

    Raises:
        UnknownNameError: A kind or a framework is unknown, or the name is invalid.
        DuplicateNameError: The name, or a name inside the package, belongs to a different package.
        MissingExtraError: The template engine is not installed.
    """
    kinds = kinds_of(kind, contents)
    supported = chosen_frameworks(kinds, frameworks)
    package = import_name(name)
    parts = [_new_part(one, name, supported, is_only=kind != PACKAGE) for one in kinds]
    check_owners(name, parts)
    values = {
        "name": name,
        "package": package,
        "about": "Parts of several kinds" if kind == PACKAGE else parts[0].about,
        "keys": [key for part in parts for key in part.keys],
        "frameworks": supported,
        "extras": extras_of(supported),
        "bound": kernel_bound(__version__),
        "requirements": parts_for_tests(),
        "preparation": preparation(supported),
        "parts": parts,
        "has_kit": kind != PACKAGE,
    }
    templates = {
        ".gitignore": "common/gitignore",
        ".github/workflows/ci.yml": "common/ci.yml",
        "pyproject.toml": "common/pyproject.toml",
        f"src/{package}/__init__.py": "common/__init__.py",
        f"src/{package}/py.typed": "common/py.typed",
    }
    files = {}
    # Path → what the file is for, as the package's README lists it.
    purposes: dict[str, str] = {}
    if kind == PACKAGE:
        templates[f"src/{package}/plugin.py"] = "package/plugin.py"
        templates[f"tests/test_{package}.py"] = "package/tests.py"
        purposes[f"src/{package}/plugin.py"] = "the declarations of all parts"
        purposes[f"tests/test_{package}.py"] = "the conformance kit, over all parts"
        values.update(_hooks_of(parts))
    for part in parts:
        part_templates = _templates_of(part, package, purposes)
        part_values = {**values, **vars(part), "about": part.about}
        files.update(_render(part_templates, part_values))
    templates["README.md"] = "common/README.md"
    files.update(_render(templates, {**values, "purposes": purposes}))
    return files


def kinds_of(kind: str, contents: Sequence[str]) -> list[str]:
    """Return the kinds of the parts in a new package.

    Raises:
        UnknownNameError: A kind is unknown or named twice, or the kinds do not fit the first
            argument.
    """
    if kind != PACKAGE:
        if contents:
            raise UnknownNameError(
                f"--with: it is only for a package with several parts: rlcatalog new {PACKAGE}"
                f" NAME --with {','.join([kind, *contents])}."
            )
        _check_kind(kind, [*KINDS, PACKAGE])
        return [kind]
    if not contents:
        raise UnknownNameError(
            f"{PACKAGE}: it has no parts. Name their kinds, as in --with model,distribution. Known:"
            f" {', '.join(KINDS)}."
        )
    for one in contents:
        _check_kind(one, KINDS)
        if contents.count(one) > 1:
            raise UnknownNameError(
                f"--with: {one} is named twice. A package has one part of a kind."
            )
    return list(contents)


def _check_kind(kind: str, known: Collection[str]) -> None:
    if kind not in known:
        raise UnknownNameError(
            f"{shown(kind)} is not a kind of part.{nearest(kind, known)} Known: {', '.join(known)}."
        )


def _new_part(kind: str, name: str, frameworks: Sequence[str], is_only: bool) -> _NewPart:
    """Return a part of a new package.

    Raises:
        UnknownNameError: Its name is too long.
    """
    package = import_name(name)
    supported = frameworks if KINDS[kind].frameworks else ()
    if is_only:
        return _NewPart(kind, "", package, package, supported)
    folder = kind.replace("-", "_")
    part = f"{package}_{folder}"
    if len(part) > LONGEST_NAME:
        raise UnknownNameError(
            f"{shown(name)} is too long: the name of its part, {part}, has {len(part)} characters,"
            f" but at most {LONGEST_NAME} are allowed."
        )
    return _NewPart(kind, folder, f"{package}.{folder}", part, supported)


def _templates_of(part: _NewPart, package: str, purposes: dict[str, str]) -> dict[str, str]:
    """Return path → template of a part's files, and enter what each of them is for."""
    folder = f"src/{package}/{part.folder}".rstrip("/")
    tests = f"tests/test_{part.part}.py"
    templates = {}
    for module in _modules_of(part.kind, part.frameworks):
        templates[f"{folder}/{module}"] = f"{part.kind}/{module}"
    for module, purpose in _TABLE["files"].items():
        if f"{folder}/{module}" in templates:
            purposes[f"{folder}/{module}"] = purpose
    templates[tests] = f"{part.kind}/tests.py"
    if part.folder:
        templates[f"{folder}/__init__.py"] = "package/__init__.py"
        purposes[tests] = f"tests for the {part.kind}'s own behaviour"
    else:
        purposes[tests] = "the tests: the conformance kit, and tests for this part's own behaviour"
    return templates


def _hooks_of(parts: Sequence[_NewPart]) -> dict[str, Any]:
    """Return what the module that joins the parts' declarations needs: the classes of the
    declarations, and for each hook its class and the folders that implement it.
    """
    folders: dict[str, list[str]] = {}
    for part in parts:
        folders.setdefault(KINDS[part.kind].part_kind, []).append(part.folder)
    hooks = []
    for part_kind, names in folders.items():
        hook, spec = _HOOKS[part_kind]
        hooks.append((hook, spec, names))
    return {"hooks": hooks, "specs": [spec for _, spec, _ in hooks]}


def _modules_of(kind: str, frameworks: Sequence[str]) -> list[str]:
    """Return the names of the package's modules for which a kind of part has a template, without
    the code for other frameworks.
    """
    modules = {path.name.removesuffix(".jinja") for path in (_TEMPLATES / kind).glob("*.py.jinja")}
    modules.remove("tests.py")
    for framework in FRAMEWORKS:
        if framework not in frameworks:
            modules.discard(f"{framework}.py")
    return sorted(modules)


def write_package(folder: Path, files: Mapping[str, str]) -> None:
    """Write a package into a folder that does not exist yet.

    Raises:
        FolderTakenError: The folder exists.
        OutputError: The files cannot be written.
    """
    with output_errors(folder):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise FolderTakenError(
                f"{folder} already exists, so nothing was written. Choose another name, or another"
                " folder with --out."
            ) from None
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


def import_name(name: str) -> str:
    """Return the import name of a distribution.

    Raises:
        UnknownNameError: The name is not a valid distribution name, or it cannot be used in an
            import.
    """
    if not _DISTRIBUTION.match(name):
        raise UnknownNameError(
            f"{shown(name)} is not a valid distribution name: expected letters, digits, '-', '_'"
            " and '.', with a letter or digit at both ends, such as acme-resnet."
        )
    if len(name) > LONGEST_NAME:
        raise UnknownNameError(
            f"{shown(name)} has {len(name)} characters, but at most {LONGEST_NAME} are allowed."
        )
    package = normalize(name).replace("-", "_")
    if not package.isidentifier() or keyword.iskeyword(package):
        raise UnknownNameError(
            f"{shown(name)} would be imported as {package!r}, which is not a valid module name."
            " Begin the name with a letter, and do not use a Python keyword."
        )
    return package


def check_owners(name: str, parts: Sequence[_NewPart]) -> None:
    """Raise an error if a new package's name, or a name that it would declare, belongs to a
    different package.

    Raises:
        DuplicateNameError: The name is taken. The message names the owner.
    """
    package = import_name(name)
    distribution = normalize(name)
    if distribution in public_index.distributions():
        raise DuplicateNameError(
            f"{name} is a distribution in the public index. Choose another name."
        )
    version = installed_version(distribution)
    if version is not None:
        # A distribution with damaged metadata has no version.
        installed = f"{name} {version}".rstrip()
        raise DuplicateNameError(f"{installed} is already installed. Choose another name.")
    if package in sys.stdlib_module_names or _is_installed(package):
        raise DuplicateNameError(
            f"{name} would be imported as {package}, but a module with that name is installed."
            " Choose another name."
        )
    claims = []
    for part in parts:
        kind = KINDS[part.kind]
        part_name = f"{name}{kind.suffix}" if kind.suffix else part.part
        claims.append((kind.part_kind, part_name))
        claims += [("config", key.name) for key in part.keys]
    for what, declared_name in claims:
        if not may_claim(what, declared_name, distribution):
            owner = public_index.provider_of(what, declared_name)
            raise DuplicateNameError(
                f"{name} would declare the {what} {declared_name!r}, but this name belongs to"
                f" {owner}. Choose another name."
            )


def _is_installed(module: str) -> bool:
    """Return whether a module can be imported.

    A folder without modules in the working directory does not count, although Python finds it as a
    namespace package, which has no origin.
    """
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def kernel_bound(version: str) -> str:
    """Return the rlcatalog versions that a new package requires, up to the next
    breaking release.
    """
    from packaging.version import Version

    present = Version(version)
    lowest = f"{present.major}.{present.minor}"
    if present.is_prerelease:
        # A prerelease comes before its release, so `>=0.1` would exclude 0.1rc1.
        lowest = str(present)
    next_breaking = f"{present.major + 1}"
    if present.major == 0:
        next_breaking = f"0.{present.minor + 1}"
    return f">={lowest},<{next_breaking}"


def chosen_frameworks(kinds: Sequence[str], frameworks: Sequence[str] | None) -> list[str]:
    """Return the frameworks that a new package supports, in the order of `FRAMEWORKS`.

    Raises:
        UnknownNameError: The framework does not exist, or parts of these kinds have no framework
            code.
    """
    if not any(KINDS[kind].frameworks for kind in kinds):
        if frameworks is not None:
            raise UnknownNameError(
                f"{', '.join(kinds)}: the code for this kind needs no framework; omit --frameworks."
            )
        return []
    if frameworks is None:
        return list(FRAMEWORKS)
    for framework in frameworks:
        if framework not in FRAMEWORKS:
            raise UnknownNameError(
                f"{shown(framework)} has no templates.{nearest(framework, FRAMEWORKS)} Known:"
                f" {', '.join(FRAMEWORKS)}."
            )
    return [framework for framework in FRAMEWORKS if framework in frameworks]


def frameworks_for_tests(frameworks: Sequence[str]) -> Sequence[str]:
    """Return the frameworks that a new package's tests need: those of its code, or one of them all
    if the code needs none.
    """
    return frameworks or FRAMEWORKS[:1]


def extras_of(frameworks: Sequence[str]) -> str:
    """Return the extras that are needed to install a new package."""
    return ",".join([*frameworks_for_tests(frameworks), "dev"])


def parts_for_tests() -> list[str]:
    """Return the packages that a new package's tests need: the kit, the command line, codecs,
    distributions, and a plain model.
    """
    return public_index.distributions(
        "space/", "action_space/", "model/fallback", "command/check", "command/list"
    )


def is_prepared(frameworks: Sequence[str]) -> bool:
    """Return whether all packages of rlcatalog that a new package requires are installed."""
    packages = [f"rlcatalog-{framework}" for framework in frameworks_for_tests(frameworks)]
    return not missing_distributions([*packages, *parts_for_tests()])


def preparation(frameworks: Sequence[str]) -> str:
    """Return the sentence that says how to install the packages of rlcatalog that a new package
    requires. It is empty once they are on PyPI, because pip then installs them, too.
    """
    if RELEASED:
        return ""
    extras = ",".join([*frameworks_for_tests(frameworks), "testing"])
    return install_hint(f"rlcatalog[{extras}]")


def _render(templates: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, str]:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError(
            "rlcatalog new fills in templates with jinja2, which is not installed."
            f" {install_hint('rlcatalog-testing[new]')}"
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    texts = {}
    for path, name in templates.items():
        texts[path] = environment.get_template(f"{name}.jinja").render(values)
    return texts
