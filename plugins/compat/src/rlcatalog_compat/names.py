"""The RLlib modules and names in the mirror, read from `names.toml` on first use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Module(NamedTuple):
    """An RLlib module.

    Attributes:
        layouts: The first and the last RLlib version with this module, among 0.8, 1.13, 2.9 and
            2.60.
        names: Name → target `"module:attribute"`.
        refused: Name → why it is not supported.
    """

    layouts: str
    names: Mapping[str, str]
    refused: Mapping[str, str]


@cache
def modules() -> dict[str, Module]:
    """Return the supported modules by path, without `ray.`."""
    table = _table()
    texts = table["texts"]
    modules_by_path = {}
    for path, entry in table["modules"].items():
        homes = [home.format_map(texts) for home in entry.get("names", ())]
        refused = {}
        for names, why in entry.get("refused", {}).items():
            for name in names.split():
                refused[name] = why.format_map(texts)
        modules_by_path[path] = Module(entry["layouts"], _targets(homes), refused)
    return modules_by_path


@cache
def reasons() -> dict[str, str]:
    """Return why modules below a path are not supported; the longest matching path takes
    precedence.
    """
    table = _table()
    return {path: why.format_map(table["texts"]) for path, why in table["reasons"].items()}


@cache
def supported_paths() -> frozenset[str]:
    """Return the paths of the supported modules and of the packages that contain them."""
    paths = set()
    for path in modules():
        while path:
            paths.add(path)
            path = path.rpartition(".")[0]
    return frozenset(paths)


def reason_for(path: str) -> str | None:
    """Return why a module or name, without `ray.`, is not supported; None if unknown."""
    parent, _, name = path.rpartition(".")
    module = modules().get(parent)
    if module is not None and name in module.refused:
        return module.refused[name]
    while path:
        if path in reasons():
            return reasons()[path]
        path = path.rpartition(".")[0]
    return None


@cache
def _table() -> dict[str, Any]:
    import tomllib  # import the parser only if the table is needed

    return tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))


def _targets(homes: Iterable[str]) -> dict[str, str]:
    """Return name → target, read from lines `"module → names"`; `.module` is in this package, and
    `old=new` renames.
    """
    targets = {}
    for home in homes:
        module, _, names = home.partition(" → ")
        if module.startswith("."):
            module = f"rlcatalog_compat{module}"
        for name in names.split():
            old, _, new = name.partition("=")
            targets[old] = f"{module}:{new or old}"
    return targets
