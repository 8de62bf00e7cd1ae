"""Warnings while a file is written."""

from __future__ import annotations

import warnings

import pytest

from rlcatalog.errors import LoadOrderWarning
from rlcatalog_export.library_warnings import only_own_warnings


def warn_of_both() -> None:
    warnings.warn("a library's", FutureWarning, stacklevel=1)
    warnings.warn("rlcatalog's", LoadOrderWarning, stacklevel=1)


def test_only_own_warnings_drops_those_of_libraries():
    with pytest.warns() as seen, only_own_warnings():
        warn_of_both()
    assert [str(warning.message) for warning in seen] == ["rlcatalog's"]


def test_only_own_warnings_follows_the_filters_of_the_caller():
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", LoadOrderWarning)
        with only_own_warnings():
            warn_of_both()
        warnings.simplefilter("error", LoadOrderWarning)
        with pytest.raises(LoadOrderWarning), only_own_warnings():
            warn_of_both()
