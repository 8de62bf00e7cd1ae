"""Saved policies: a filter comes back with its statistics."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import Catalog, FilterSpec
from rlcatalog.errors import CatalogError, SavedPolicyError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading

BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors")):
    return Catalog([*(point for point in scan() if point.name in names), *more], environ={})


def observations(space, n=5, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


class Counting(rlcatalog.Filter):
    """Subtracts the mean of what it has seen."""

    factor = 1.0

    def __init__(self, preprocessor, options):
        super().__init__(preprocessor, options)
        self.n, self.total = 0, np.zeros(preprocessor.shape)

    def __call__(self, encoded, *, update=False):
        if update:
            self.n, self.total = self.n + len(encoded), self.total + encoded.sum(axis=0)
        return (encoded - self.factor * self.total / max(self.n, 1)).astype(np.float32)

    def get_state(self):
        return {"n": np.array(self.n), "total": self.total}

    def set_state(self, state):
        self.n, self.total = int(state["n"].reshape(())), state["total"]


#: The config that names the filter.
COUNTING = {"observation_filter": "acme_filters_counting"}


class OtherCounting(Counting):
    factor = 100.0


@pytest.fixture
def filters(module, entry_point, plugin):
    module(Counting=Counting, OtherCounting=OtherCounting)
    own = FilterSpec(
        "acme_filters_counting", {"numpy": "made_up_parts:Counting"}, "subtracts the mean"
    )
    other = FilterSpec("acme_filters_counting", {"numpy": "made_up_parts:OtherCounting"}, "")
    return SimpleNamespace(
        own=entry_point("acme-filters", plugin(rlcatalog_filters=[own]), version="7.8"), other=other
    )


def test_statistics_of_a_filter_come_back(directory, filters, arrays, same_policy):
    policy = rlcatalog.build(BOX, TWO, COUNTING, catalog=catalog_of(filters.own))
    policy.preprocess(observations(BOX, seed=3), update=True)
    policy.save(directory)
    assert arrays(directory, "filter").is_file()
    back = loading.load(directory, catalog=catalog_of(filters.own))
    assert back.filter.n == 5
    np.testing.assert_array_equal(back.filter.total, policy.filter.total)
    same_policy(policy, back, observations(BOX))


def test_filter_is_pinned(directory, filters):
    rlcatalog.build(BOX, TWO, COUNTING, catalog=catalog_of(filters.own)).save(directory)
    today = catalog_of(filters.own)
    today.register(filters.other)
    assert type(loading.load(directory, catalog=today).filter) is Counting


def test_statistics_of_a_filter_are_not_forgotten_silently(directory, filters, arrays, edit):
    rlcatalog.build(BOX, TWO, COUNTING, catalog=catalog_of(filters.own)).save(directory)
    manifest = edit(directory)
    weights = arrays(directory).name
    edit(directory, files={weights: manifest["files"][weights]})
    with pytest.raises(SavedPolicyError, match=r"incomplete; missing: \['filter-"):
        loading.load(directory, catalog=catalog_of(filters.own))


def test_missing_outsiders_plugin_is_named_with_its_version(directory, filters, refused):
    rlcatalog.build(BOX, TWO, COUNTING, catalog=catalog_of(filters.own)).save(directory)
    said = refused(directory, "acme-filters", CatalogError)
    assert "acme-filters 7.8" in said
