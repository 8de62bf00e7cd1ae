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

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/reference/api"
#: Doors of packages beside the kernel, which programs import.
PACKAGES = ("rlcatalog_ppo", "rlcatalog_sb3", "rlcatalog_rllib", "rlcatalog_filters")
#: What is neither a class nor a function, where the table of doors says nothing of it.
DATA = {
    "MODEL_DEFAULTS": "a new dictionary with every [config key](../../config.md) and its default",
    "hookimpl": "the decorator that marks a [hook](../../hooks.md)",
}
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
        entries, elsewhere = [], []
        for name, meaning in names.items():
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                elsewhere.append(f"- `{name}`: {meaning or _short(value)}")
            elif id(value) in described:
                first = described[id(value)]
                elsewhere.append(f"- `{name}` is {{py:obj}}`{first}`")
            else:
                described[id(value)] = f"{door}.{name}"
                entries.append(directive(door, name, value))
        for path in RETURNED.get(door, []):
            place, _, name = path.rpartition(".")
            entries.append(directive(place, name, getattr(importlib.import_module(place), name)))
        text = [f"# `{door}`", "", head, ""]
        text += [*elsewhere, ""] if elsewhere else []
        text += ["```{eval-rst}", "\n\n".join(entries), "```", ""] if entries else []
        made[TARGET / f"{door}.md"] = "\n".join(text)
    made[TARGET / "index.md"] = index(made)
    return made


def index(made: dict[Path, str]) -> str:
    """Return the page that leads to the others."""
    rows = ["| door | what it is for |", "| --- | --- |"]
    for path, text in made.items():
        rows.append(f"| [`{path.stem}`]({path.name}) | {text.splitlines()[2]} |")
    return "\n".join(
        [
            "# API",
            "",
            "Everything that programs and plugins may import, with the docstrings. Names that are"
            " not listed may change",
            "without notice.",
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
    lines = [f".. autoclass:: {door}.{name}", "   :members:"]
    return "\n".join(lines)
