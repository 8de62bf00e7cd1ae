"""Writes `docs/reference/api`: one page for each door, with what its names' docstrings say.

The names are listed in `docs/reference/imports.md`. A name that two doors have is described at the
first one. Run by `tools/reference_pages.py`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import rlcatalog
from rlcatalog.plugins.declarations import Declaration

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/reference/api"
#: Doors of packages beside the kernel, which programs import.
PACKAGES = ("rlcatalog_ppo", "rlcatalog_sb3", "rlcatalog_rllib", "rlcatalog_filters")
#: What is neither a class nor a function, where the table of doors says nothing of it.
DATA = {
    "MODEL_DEFAULTS": "a new dictionary with every [config key](../../config.md) and its default",
    "hookimpl": "the decorator that marks a [hook](../../hooks.md)",
}
#: Headings of the page of `rlcatalog` → their names, the ones that most programs use first.
SECTIONS = {
    "Policies": ("build", "load", "Policy"),
    "RLlib's catalog": (
        "ModelCatalog",
        "MODEL_DEFAULTS",
        "one_hot",
        "restore_original_dimensions",
        "TupleActions",
        "ViewRequirement",
    ),
    "Acting": ("Step", "Stepper", "Actor", "wrap_env"),
    "What was chosen": ("explain", "default_catalog", "refresh", "Catalog", "PluginRecord"),
    "Register your own classes": (
        "register_model",
        "register_action_dist",
        "register_preprocessor",
        "register_filter",
    ),
    "Base classes": ("ModelV2", "ActionDistribution", "Preprocessor", "Filter"),
}
#: The heading over the other names of that page.
OTHER_SECTION = "Declarations of plugins"
#: Members of classes that users of a class do not need.
HIDDEN_MEMBERS = ("aliases", "algorithm")
#: What doors return, and no door exports: page → where it stands.
RETURNED = {
    "rlcatalog": [
        "rlcatalog_policy.stepper.Stepper",
        "rlcatalog.plugins.discovery.PluginRecord",
        "rlcatalog.declaration.Declaration",
    ],
    "rlcatalog_ppo": [
        "rlcatalog_ppo.config.PPOConfig",
        "rlcatalog_ppo.config.A2CConfig",
        "rlcatalog_ppo.config.PGConfig",
    ],
}
#: What a page is for, where the module's docstring is written for those who work on it.
TITLES = {
    "rlcatalog": "The starting point for programs and plugins.",
    "rlcatalog_torch": "Base classes, building blocks and the classes of installed parts in"
    " PyTorch.",
    "rlcatalog_tf": "Base classes, building blocks and the classes of installed parts in"
    " TensorFlow.",
}


def listed() -> dict[str, dict[str, str]]:
    """Return door → its names in the order of `docs/reference/imports.md` → what they are for."""
    section = (ROOT / "docs/reference/imports.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {}
    door = ""
    for line in section.splitlines():
        if not line.startswith("| ") or line.startswith("| door"):
            continue
        place, names, meaning = (cell.strip() for cell in line.strip("|").split("|", 2))
        door = place.strip("`") or door
        found.setdefault(door, {}).update(dict.fromkeys(re.findall(r"`(\w+)`", names), meaning))
    return found


def part_classes(framework: str) -> list[str]:
    """Return the names of the classes of this repository's parts in a framework."""
    index = json.loads(
        (ROOT / "catalog/src/rlcatalog/public_index.json").read_text(encoding="utf-8")
    )
    prefix = f"export/{framework}/"
    return sorted(key.removeprefix(prefix) for key in index["provides"] if key.startswith(prefix))


def doors() -> dict[str, dict[str, str]]:
    """Return every door → its names → what they are for, where that is said elsewhere."""
    public = [name for name in rlcatalog.__all__ if not name.startswith("_")]
    found = {"rlcatalog": {name: DATA.get(name, "") for name in public}, **listed()}
    for framework in ("torch", "tf"):
        found[f"rlcatalog_{framework}"] |= dict.fromkeys(part_classes(framework), "")
    found["rlcatalog.preprocessors"] = dict.fromkeys(
        sorted(dir(importlib.import_module("rlcatalog.preprocessors"))), ""
    )
    for package in PACKAGES:
        found[package] = dict.fromkeys(sorted(importlib.import_module(package).__all__), "")
    return found


def pages() -> dict[Path, str]:
    """Return the pages: file → text."""
    described: dict[int, str] = {}
    made = {}
    for door, names in doors().items():
        module = importlib.import_module(door)
        head = TITLES.get(door) or (inspect.getdoc(module) or "").partition("\n\n")[0].replace(
            "\n", " "
        )
        entries: dict[str, str] = {}
        elsewhere: dict[str, str] = {}
        for name, meaning in names.items():
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                elsewhere[name] = f"- `{name}`: {meaning or _short(value)}"
            elif id(value) in described:
                first = described[id(value)]
                elsewhere[name] = f"- `{name}` is {{py:obj}}`{first}`"
            else:
                described[id(value)] = f"{door}.{name}"
                entries[name] = directive(door, name, value)
        for path in RETURNED.get(door, []):
            place, _, name = path.rpartition(".")
            value = getattr(importlib.import_module(place), name)
            entries[name] = directive(place, name, value)
        text = [f"# `{door}`", "", head, ""]
        if door == "rlcatalog":
            for title, part in _sections([*elsewhere, *entries]).items():
                text += [f"## {title}", "", *_listing(part, elsewhere, entries)]
        else:
            text += _listing([*elsewhere, *entries], elsewhere, entries)
        made[TARGET / f"{door}.md"] = "\n".join(text)
    made[TARGET / "index.md"] = index(made)
    return made


def _sections(names: list[str]) -> dict[str, list[str]]:
    """Return heading → names of the page of `rlcatalog`, in the order of that page."""
    sections = {title: list(listed) for title, listed in SECTIONS.items()}
    in_a_section = {name for listed in SECTIONS.values() for name in listed}
    sections[OTHER_SECTION] = [name for name in names if name not in in_a_section]
    return sections


def _listing(names: list[str], elsewhere: dict[str, str], entries: dict[str, str]) -> list[str]:
    """Return the lines of names: first data and what other pages describe, then directives."""
    lines = [elsewhere[name] for name in names if name in elsewhere]
    if lines:
        lines.append("")
    directives = [entries[name] for name in names if name in entries]
    if directives:
        lines += ["```{eval-rst}", "\n\n".join(directives), "```", ""]
    return lines


def index(made: dict[Path, str]) -> str:
    """Return the page that leads to the others."""
    rows = ["| module | what it is for |", "| --- | --- |"]
    for path, text in made.items():
        rows.append(f"| [`{path.stem}`]({path.name}) | {text.splitlines()[2]} |")
    return "\n".join(
        [
            "# API",
            "",
            "These pages contain everything that programs and plugins may import, with the"
            " docstrings. Most programs only",
            "need [`rlcatalog`](rlcatalog.md) and the package of an engine; the other modules are"
            " for plugins. Names that are",
            "not listed may change without notice.",
            "",
            "In a clone, these files contain only the names: `make docs` builds the site with the"
            " docstrings. In Python,",
            "`help(rlcatalog.build)` shows the docstring of a name.",
            "",
            *rows,
            "",
            "```{toctree}",
            ":hidden:",
            "",
            *(path.stem for path in made),
            "```",
            "",
        ]
    )


def _short(value: Any) -> str:
    return (
        f"the module `{value.__name__}`"
        if inspect.ismodule(value)
        else f"a `{type(value).__name__}`"
    )


def directive(door: str, name: str, value: Any) -> str:
    """Return the directive that describes a name."""
    if not inspect.isclass(value):
        return f".. autofunction:: {door}.{name}"
    lines = [f".. autoclass:: {door}.{name}"]
    # The docstring of a declaration describes its fields; its methods are for the kernel.
    if not issubclass(value, Declaration):
        lines.append("   :members:")
        hidden = [member for member in HIDDEN_MEMBERS if hasattr(value, member)]
        if hidden:
            lines.append(f"   :exclude-members: {', '.join(hidden)}")
    return "\n".join(lines)
