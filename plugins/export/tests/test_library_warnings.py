"""Warnings that are shown while a file is written."""

from __future__ import annotations

import warnings

import pytest

from rlcatalog.errors import LoadOrderWarning
from rlcatalog_export.library_warnings import only_own_warnings


def warn_as_library_and_as_rlcatalog():
    warnings.warn("a library's", FutureWarning, stacklevel=1)
    warnings.warn("rlcatalog's", LoadOrderWarning, stacklevel=1)


def test_only_own_warnings_drops_those_of_libraries():
    with pytest.warns() as caught, only_own_warnings():
        warn_as_library_and_as_rlcatalog()

    assert [str(warning.message) for warning in caught] == ["rlcatalog's"]


def test_only_own_warnings_drops_library_warnings_as_errors():
    # No error is raised.
    with warnings.catch_warnings(action="error"), only_own_warnings():
        warnings.warn("a library's", FutureWarning, stacklevel=1)


def test_only_own_warnings_keeps_the_callers_ignore_filter():
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", LoadOrderWarning)
        # No error is raised.
        with only_own_warnings():
            warn_as_library_and_as_rlcatalog()


def test_only_own_warnings_keeps_the_callers_error_filter():
    with warnings.catch_warnings():
        warnings.simplefilter("error", LoadOrderWarning)
        with pytest.raises(LoadOrderWarning), only_own_warnings():
            warn_as_library_and_as_rlcatalog()
