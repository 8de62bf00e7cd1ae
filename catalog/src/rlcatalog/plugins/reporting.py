"""Warnings about plugins: each is said once, and none ends what its reader was doing."""

from __future__ import annotations

import warnings

from rlcatalog.errors import PluginWarning

_SAID: set[tuple[str, ...]] = set()


def tell(text: str, category: type[PluginWarning] = PluginWarning, stacklevel: int = 3) -> None:
    """Warn; where warnings are errors (`-W error`) it is shown all the same, for the plugin alone is at fault.

    `RLCATALOG_STRICT_PLUGINS=1` is for those who would rather stop.
    """
    try:
        warnings.warn(text, category, stacklevel=stacklevel)
    except category as warning:
        warnings.showwarning(warning, category, "rlcatalog", 0)


def tell_once(text: str, about: tuple[str, ...], category: type[PluginWarning] = PluginWarning) -> None:
    """Warn once per process of one thing.

    Args:
        text: The warning.
        about: What it is about.
        category: Its category.
    """
    if about not in _SAID:
        _SAID.add(about)
        tell(text, category, stacklevel=4)
