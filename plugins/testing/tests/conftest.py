"""Catalogs with a sound or a faulty part of the made-up package acme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults import Fault, forget_loaded_parts, make_catalog_of

from rlcatalog import Catalog


@pytest.fixture
def make_catalog(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Fault], Catalog]]:
    """Return a catalog with a part of acme that has this fault."""
    forget_loaded_parts()
    yield lambda fault: make_catalog_of(fault, monkeypatch, tmp_path)
    forget_loaded_parts()
