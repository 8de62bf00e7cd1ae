"""Warnings about old names, shown where the user's own code stands."""

from __future__ import annotations

import sys
import warnings


def warn_deprecated(text: str) -> None:
    """Issue a DeprecationWarning for the first caller outside rlcatalog and its packages."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rlcatalog"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, DeprecationWarning, stacklevel=level)
