"""The way from the rooms below `plugins` up to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Plugins(Protocol):
    """What the rooms below `plugins` ask of it; they cannot import it, because it imports them."""

    def load_indexed(self, kind: str) -> Iterable[Any]:
        """Return the shared declarations of a kind that installed packages of the public index
        have; see `rlcatalog.plugins.loader.load_indexed`.
        """

    def condition_of(self, distribution: str) -> str | None:
        """Return what keeps this process from using an installed distribution; see
        `rlcatalog.plugins.loader.condition_of`.
        """

    def install_hint(self, *requirements: str) -> str:
        """Return a sentence that says how to install packages; see
        `rlcatalog.plugins.install_hint`.
        """

    def how_to_get(self, distribution: str) -> str:
        """Return the end of a sentence about something that a distribution which is not installed
        provides; see `rlcatalog.plugins.install_hints.how_to_get`.
        """


#: The room `plugins`. `rlcatalog/__init__.py` sets it.
plugins: Plugins
