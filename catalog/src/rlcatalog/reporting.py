"""Warnings about plugins and user code."""

from __future__ import annotations

import sys
import warnings

from rlcatalog.errors import PluginWarning


def tell(text: str, stacklevel: int = 3) -> None:
    """Show a warning without raising it, even with `-W error`, because the plugin is at fault, not
    the user.

    `RLCATALOG_STRICT_PLUGINS=1` turns problems with plugins into errors.
    """
    try:
        warnings.warn(text, PluginWarning, stacklevel=stacklevel)
    except PluginWarning as warning:
        warnings.showwarning(warning, PluginWarning, "rlcatalog", 0)


def warn_deprecated(text: str) -> None:
    """Issue a DeprecationWarning for the first caller outside rlcatalog and its packages."""
    warn_caller(text, DeprecationWarning)


def warn_caller(text: str, category: type[Warning]) -> None:
    """Issue a warning for the first caller outside rlcatalog and its packages.

    Args:
        text: The warning.
        category: Its category.
    """
    level = 2  # for `warnings.warn`, 1 is this function and 2 is its caller
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rlcatalog"):
        level += 1
        frame = frame.f_back
    warnings.warn(text, category, stacklevel=level)
