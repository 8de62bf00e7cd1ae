"""Install hints: sentences that tell a user which packages to install, with a line to paste.

All messages get their install lines here. Before the first release, the names of rlcatalog's
packages are not registered on PyPI. Anyone could register one of them, and a message that says `pip
install rlcatalog-fcnet` would then make users run foreign code. Until the release, the lines
install from a clone of rlcatalog instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from rlcatalog import public_index
from rlcatalog.plugins.discovery import installed_version

#: Whether rlcatalog's packages are on PyPI. RELEASING.md says when to set it.
RELEASED = False


def install_hint(*requirements: str) -> str:
    """Return a sentence that says how to install packages of rlcatalog, with a line to paste.

    Before the first release, the line works in the root of a clone. It then also contains those of
    rlcatalog's packages that the given ones require and that are not installed, because pip finds
    them nowhere else.

    A name that the public index does not list gets no line, because it may come from a file that
    someone else wrote.

    Args:
        *requirements: Packages with the extras that are needed: `"rlcatalog-fcnet"`,
            `"rlcatalog-cli[pictures]"`, or `"rlcatalog[torch]"`.
    """
    folders = public_index.folders()
    for requirement in requirements:
        name = _split(requirement).name
        if name not in folders:
            return (
                f"{name} is a third-party package: install it as its authors describe, if you trust"
                " them."
            )
    if RELEASED:
        return f"Run: pip install {_quoted(requirements)}"
    required: list[str] = []
    for requirement in requirements:
        package = _split(requirement)
        required += public_index.needs(package.name, package.extras)
    paths = [_path(name) for name in (*requirements, *missing_distributions(required))]
    each_path_once = dict.fromkeys(paths)
    return f"In a clone of rlcatalog, run: pip install {_quoted(each_path_once)}"


def how_to_get(distribution: str, condition: str | None = None) -> str:
    """Return the end of a sentence about something that an unusable distribution provides.

    Args:
        distribution: The distribution.
        condition: What keeps it from being used, from `loader.condition_of`; None if it is not
            installed.
    """
    if condition is not None:
        return f"is provided by {distribution}, which {condition}"
    return f"is provided by {distribution}, which is not installed. {install_hint(distribution)}"


def how_to_start() -> str:
    """Return the sentences that say which packages to install first."""
    extras = [f"[{name}]" for name in public_index.frameworks()]
    return (
        f"Parts are in separate packages. Each of the extras {' and '.join(extras)} installs all"
        f" that a policy needs. {install_hint('rlcatalog' + extras[0])}"
    )


def missing_distributions(distributions: Iterable[str]) -> list[str]:
    """Return the distributions that are not installed, each once."""
    return [name for name in dict.fromkeys(distributions) if installed_version(name) is None]


class _Package(NamedTuple):
    """A package to install, with its extras."""

    name: str
    extras: list[str]


def _split(requirement: str) -> _Package:
    name, _, extras = requirement.rstrip("]").partition("[")
    if not extras:
        return _Package(name, [])
    return _Package(name, extras.split(","))


def _path(requirement: str) -> str:
    """Return what pip installs for a requirement in the root of a clone."""
    name, bracket, extras = requirement.partition("[")
    if name == "rlcatalog" and extras:
        return f".[{extras}"  # the clone itself has the kernel's extras
    return f"./{public_index.folders()[name]}{bracket}{extras}"


def _quoted(words: Iterable[str]) -> str:
    """Return words as a shell reads them."""
    return " ".join(shlex.quote(word) for word in words)
