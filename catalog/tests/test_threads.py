"""Catalogs made by several threads at once, of the same plugins, are whole."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from rlcatalog import Catalog


@pytest.fixture(autouse=True)
def frequent_switches():
    """Threads take turns every few operations; by default one would load all its plugins before the next runs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_catalogs_of_several_threads_are_whole():
    threads = 8
    together = Barrier(threads)

    def make(_):
        together.wait()
        return [Catalog(environ={}) for _ in range(5)]

    with ThreadPoolExecutor(threads) as pool:
        catalogs = [catalog for made in pool.map(make, range(threads)) for catalog in made]
    listings = {tuple((r.distribution, r.status, r.error) for r in catalog.plugins) for catalog in catalogs}
    assert listings == {tuple((r.distribution, "loaded", None) for r in Catalog(environ={}).plugins)}
