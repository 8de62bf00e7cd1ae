"""Warnings of the libraries that write files."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from rlcatalog.errors import CatalogWarning


@contextlib.contextmanager
def only_own_warnings() -> Iterator[None]:
    """Return a context that drops the libraries' warnings, and repeats rlcatalog's at its end, so
    that the caller's filters decide about them.
    """
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
    finally:
        for warning in seen:
            if issubclass(warning.category, CatalogWarning):
                place = warning.filename, warning.lineno
                warnings.warn_explicit(warning.message, warning.category, *place)
