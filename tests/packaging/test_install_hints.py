"""Install lines: one function makes those of messages, all lines work in a clone, and none names a
package that is not registered.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from package_environments import FOLDERS, ROOT, installed_by, lines_of_project
from packaging.requirements import Requirement

from rlcatalog import public_index
from rlcatalog.plugins import install_hint, install_hints

IN_CLONE = "In a clone of rlcatalog, run: pip install "
#: Files whose install lines do not come from `install_hint`, and how these lines begin. They
#: install a plugin from its author's own folder, a clone from a folder within it, or the tested
#: version of a library that is installed already.
OF_AUTHORS = {
    "catalog/src/rlcatalog/private_names.py": ["pip install"],
    "plugins/envs/src/rlcatalog_envs/dm_env.py": ["pip install 'shimmy[dm-control,bsuite]'"],
    "plugins/envs/src/rlcatalog_envs/envpool.py": ["pip install envpool"],
    "plugins/testing/src/rlcatalog_testing/commands.py": ['pip install -e ".['],
    "plugins/testing/src/rlcatalog_testing/runner.py": ["pip install -e .` in its folder."],
    "plugins/testing/src/rlcatalog_testing/templates/common/README.md.jinja": [
        'pip install -e ".[{{ extras }}]"'
    ],
    "plugins/testing/src/rlcatalog_testing/templates/common/ci.yml.jinja": [
        "pip install './rlcatalog[{{ extras",
        'pip install -e ".[{{ extras }}]"',
    ],
}
#: Third parties that pages tell readers to install, all of them registered on PyPI.
REGISTERED = {
    "timm",
    "gymnasium[mujoco]",
    "torch",
    "envpool",
    "pettingzoo",
    "shimmy[dm-control,bsuite]",
    "fastapi",
    "uvicorn",
}

CLONE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROJECTS = {
    name: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, folder in FOLDERS.items()
}
#: All that `install_hint` may be asked for: each listed package, alone and with each of its extras.
REQUIREMENTS = [
    requirement
    for name in public_index.folders()
    for requirement in (
        name,
        *(f"{name}[{extra}]" for extra in PROJECTS[name].get("optional-dependencies", {})),
    )
]
REQUIREMENTS.append("rlcatalog[torch,tf,testing]")  # several extras at once


# --- the lines of messages ------------------------------------------------------------------------


@pytest.fixture
def unreleased(monkeypatch):
    """The packages are not on PyPI yet."""
    monkeypatch.setattr(install_hints, "RELEASED", False)


def requirement_of(path: str) -> Requirement:
    """Return what a path such as `./plugins/cli[pictures]` installs in the clone's root."""
    folder, bracket, extras = path.partition("[")
    assert folder.startswith("."), f"{path!r} is no path, so pip would ask the index for it"
    if folder == ".":
        return Requirement(f"{CLONE['name']}{bracket}{extras}")
    names = {path: name for name, path in FOLDERS.items()}
    return Requirement(f"{names[(ROOT / folder).resolve()]}{bracket}{extras}")


def lines_of(requirement: Requirement) -> list[str]:
    """Return what a package of the clone requires, or the clone itself."""
    if requirement.name != CLONE["name"]:
        return lines_of_project(requirement)
    lines = list(CLONE["dependencies"])
    for extra in requirement.extras:
        lines += CLONE["optional-dependencies"][extra]
    return [line.replace("{root:uri}", ROOT.as_uri()) for line in lines]


def left_to_the_index(paths: list[str], installed: set[str]) -> set[str]:
    """Return those of our packages that pip asks the index for when it installs paths of the
    clone.
    """
    waiting = [requirement_of(path) for path in paths]
    here = {*installed, *(requirement.name for requirement in waiting)}
    required: set[str] = set()
    done: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        required.add(requirement.name)
        if requirement.url is not None:
            here.add(requirement.name)
        if requirement.name in {*FOLDERS, CLONE["name"]}:
            waiting += [Requirement(line) for line in lines_of(requirement)]
    return required & FOLDERS.keys() - here


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_hint_names_paths_that_bring_all_they_need(unreleased, monkeypatch, requirement):
    # Only the kernel is installed.
    monkeypatch.setattr(install_hints, "missing_distributions", list)
    line = install_hint(requirement)
    assert line.startswith(IN_CLONE)
    paths = shlex.split(line.removeprefix(IN_CLONE))
    assert left_to_the_index(paths, installed={"rlcatalog"}) == set()


def test_paths_without_their_needs_are_seen():
    left = left_to_the_index(["./plugins/export[torch]"], installed={"rlcatalog"})
    assert left == {"rlcatalog-policy", "rlcatalog-preprocessors", "rlcatalog-torch"}


def test_hint_leaves_out_what_is_installed(unreleased, monkeypatch):
    monkeypatch.setattr(
        install_hints, "missing_distributions", lambda names: ["rlcatalog-preprocessors"]
    )
    assert install_hint("rlcatalog-export") == (
        f"{IN_CLONE}./plugins/export ./plugins/preprocessors"
    )


def test_hint_quotes_extras_for_the_shell(unreleased):
    assert install_hint("rlcatalog-cli[pictures]") == f"{IN_CLONE}'./plugins/cli[pictures]'"


@pytest.mark.parametrize("name", ["acme-net", "acme-net[torch]", "rlcatalog-nowhere"])
def test_hint_for_an_unlisted_name_has_no_line(name):
    hint = install_hint(name)
    assert hint.startswith(f"{name.partition('[')[0]} is a third-party package")
    assert "pip" not in hint


def test_hint_names_packages_once_they_are_released(monkeypatch):
    monkeypatch.setattr(install_hints, "RELEASED", True)
    assert install_hint("rlcatalog[torch]", "rlcatalog-atari") == (
        "Run: pip install 'rlcatalog[torch]' rlcatalog-atari"
    )


def test_missing_distributions_are_those_without_metadata():
    names = ["rlcatalog", "rlcatalog-nowhere", "rlcatalog-nowhere"]
    assert install_hints.missing_distributions(names) == ["rlcatalog-nowhere"]


# --- the lines in the source ----------------------------------------------------------------------


def texts_of(path: Path) -> list[str]:
    """Return the texts in a file that a user may see: a module's strings, joined as Python joins
    them, or all lines of another file.
    """
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return source.splitlines()
    nodes = list(ast.walk(ast.parse(source)))
    texts = []
    within: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            texts.append("".join(parts))
            within.update(node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in within:
            texts.append(node.value)
    return texts


def source_files() -> list[Path]:
    """Return the packages' files of text, the one of `install_hint` left out."""
    suffixes = (".py", ".toml", ".jinja", ".json")
    return sorted(
        path
        for folder in FOLDERS.values()
        for path in (folder / "src").rglob("*")
        if path.suffix in suffixes and path != Path(install_hints.__file__).resolve()
    )


def install_lines(texts: list[str]) -> list[str]:
    """Return what begins with `pip install` in some texts, to the end of its line."""
    return [line for text in texts for line in re.findall(r"pip install.*", text)]


def test_messages_get_their_install_lines_from_one_function():
    for path in source_files():
        allowed = OF_AUTHORS.get(path.relative_to(ROOT).as_posix(), [])
        for line in install_lines(texts_of(path)):
            assert line.startswith(tuple(allowed)), f"{path}: {line!r}: call install_hint"


def test_files_with_lines_of_their_own_still_have_them():
    for name, beginnings in OF_AUTHORS.items():
        lines = install_lines(texts_of(ROOT / name))
        for beginning in beginnings:
            assert any(line.startswith(beginning) for line in lines), (name, beginning)


def test_install_lines_are_seen_in_joined_strings(tmp_path):
    (tmp_path / "module.py").write_text(
        'name = f"{0} pip "\\\n  f"install {1}"\n', encoding="utf-8"
    )
    assert install_lines(texts_of(tmp_path / "module.py")) == ["pip install {}"]


def test_requirements_in_the_source_exist():
    requirements = set()
    for path in source_files():
        for arguments in re.findall(r"install_hint\(([^)]*)\)", path.read_text(encoding="utf-8")):
            requirements |= set(re.findall(r"""["']([^"'{}]+)["']""", arguments))

    assert "rlcatalog-cli[pictures]" in requirements
    assert requirements <= set(REQUIREMENTS)
    # Its requirement is put together in the source.
    assert "rlcatalog-sb3[contrib]" in REQUIREMENTS


# --- the lines of pages ---------------------------------------------------------------------------


def pages() -> list[Path]:
    """Return the pages for users, and the text from which a tool writes one."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*")]
    found += [folder / "README.md" for folder in FOLDERS.values()]
    found += [ROOT / "benchmarks/learning/page_text.py"]
    left_out = [
        ROOT / "docs/_build",
        ROOT / "docs/reference/errors.md",  # its lines are those of messages
    ]
    return [
        path
        for path in found
        if path.suffix in (".md", ".py") and not any(map(path.is_relative_to, left_out))
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_installs_what_a_clone_has(page):
    for line in re.findall(r"pip install ([^`\n|]+)", page.read_text(encoding="utf-8")):
        words = shlex.split(line.rstrip(".,"))
        if "-e" in words:
            continue  # a plugin, from its author's own folder
        registered = {*REGISTERED, *REQUIREMENTS} if install_hints.RELEASED else REGISTERED
        paths = [word for word in words if word not in registered]
        assert left_to_the_index(paths, installed=set()) == set(), line


# --- pip ------------------------------------------------------------------------------------------

#: A package without needs, one with two, and an extra of the clone.
TRIED = [
    pytest.param("rlcatalog-categorical", marks=pytest.mark.slow),
    pytest.param("rlcatalog-export", marks=pytest.mark.slow),
    "rlcatalog[actor]",
]


@pytest.mark.packaging
@pytest.mark.parametrize("requirement", TRIED)
def test_pip_installs_the_line_of_a_hint(environment, requirement):
    env = environment("rlcatalog", without=("torch", "tensorflow"))
    ask_for_the_hint = (
        "from rlcatalog.plugins import install_hints\n"
        "install_hints.RELEASED = False\n"
        "report['line'] = install_hints.install_hint(data['requirement'])"
    )
    hint = env.probe(ask_for_the_hint, requirement=requirement)["line"]
    paths = shlex.split(hint.removeprefix("In a clone of rlcatalog, run: pip install "))

    # Third parties and build tools are in the environment, so that pip needs no index.
    options = ["--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    run = env.run("-m", "pip", "install", *options, *paths, cwd=ROOT)

    assert run.returncode == 0, run.stderr
    list_plugins = (
        "import rlcatalog\n"
        "report['plugins'] = [[r.distribution, r.status] for r in rlcatalog.Catalog().plugins]"
    )
    # Our packages that the line installs, without the catalog itself, which is no plugin.
    expected_plugins = installed_by(requirement) & FOLDERS.keys() - {"rlcatalog"}
    assert env.probe(list_plugins)["plugins"] == [
        [name, "loaded"] for name in sorted(expected_plugins)
    ]
