"""Public index of names and their distributions, for install hints, the naming rule and the rule of
choice.

It is a data file, so that the kernel's code does not name any part. `tools/public_index.py`
writes it from the packages of this repository; other packages can be added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any


@cache
def _data() -> Any:
    from importlib import resources

    return json.loads(
        (resources.files(__package__) / "public_index.json").read_text(encoding="utf-8")
    )


def provider_of(kind: str, name: str) -> str | None:
    """Return the distribution that provides a part, a config key (`kind="config"`) or an
    export, or None.
    """
    owner: str | None = _data()["provides"].get(f"{kind}/{name}")
    return owner


@cache
def kernel_keys() -> frozenset[str]:
    """Return the config keys that belong to the kernel itself."""
    keys = []
    for entry, owner in _data()["provides"].items():
        kind, _, name = entry.partition("/")
        if owner == "rlcatalog" and kind == "config":
            keys.append(name)
    return frozenset(keys)


def distributions(*entries: str) -> list[str]:
    """Return the listed distributions; given prefixes such as `"space/"`, only the ones with a
    matching entry.
    """
    if not entries:
        return list(_data()["folders"])
    provides = _data()["provides"]
    return sorted({provides[entry] for entry in provides if entry.startswith(entries)})


def frameworks() -> tuple[str, ...]:
    """Return the names of the frameworks in the index, in search order."""
    return tuple(_data()["frameworks"])


def folders() -> dict[str, str]:
    """Return the folder in a clone of rlcatalog of each listed distribution."""
    return dict(_data()["folders"])


def needs(distribution: str, extras: Iterable[str] = ()) -> list[str]:
    """Return the listed distributions that another one requires, directly or not, the kernel left
    out.

    Args:
        distribution: The distribution.
        extras: Those of its extras that are installed, too.
    """
    with_extras = [f"{distribution}[{extra}]" for extra in extras]
    required: list[str] = []
    for name in (distribution, *with_extras):
        required += _data()["needs"].get(name, [])
    return required
