"""Saved policies with a filter: its statistics, its class, and its plugin."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import Catalog, FilterSpec
from rlcatalog.errors import CatalogError, SavedPolicyError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading

THREE_NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
TWO = spaces.Discrete(2)
CONFIG = {"observation_filter": "acme_filters_mean"}


def make_catalog(*more_points):
    """Return a catalog of four installed plugins and these entry points."""
    names = ("fcnet", "categorical", "gaussian", "preprocessors")
    points = [point for point in scan() if point.name in names]
    return Catalog([*points, *more_points], environ={})


def sample_observations(*, seed):
    THREE_NUMBERS.seed(seed)
    return [THREE_NUMBERS.sample() for _ in range(5)]


class SubtractsMean(rlcatalog.Filter):
    """Subtracts the mean of all observations that it has learned from."""

    def __init__(self, preprocessor, options):
        super().__init__(preprocessor, options)
        self.n = 0
        self.total = np.zeros(preprocessor.shape)

    def __call__(self, encoded, *, update=False):
        if update:
            self.n += len(encoded)
            self.total = self.total + encoded.sum(axis=0)
        mean = self.total / max(self.n, 1)
        return (encoded - mean).astype(np.float32)

    def get_state(self):
        return {"n": np.array(self.n), "total": self.total}

    def set_state(self, state):
        self.n = int(state["n"].reshape(()))
        self.total = state["total"]


class AnotherFilter(SubtractsMean):
    """A filter that is registered later, under the same name."""


@pytest.fixture
def acme_filters(module, entry_point, plugin):
    """The entry point of a plugin acme-filters 7.8, which has the filter `SubtractsMean`."""
    module(SubtractsMean=SubtractsMean, AnotherFilter=AnotherFilter)
    spec = FilterSpec("acme_filters_mean", {"numpy": "made_up_parts:SubtractsMean"}, "")
    return entry_point("acme-filters", plugin(rlcatalog_filters=[spec]), version="7.8")


@pytest.fixture
def saved(directory, acme_filters):
    """The folder of a saved policy with the plugin's filter."""
    catalog = make_catalog(acme_filters)
    rlcatalog.build(THREE_NUMBERS, TWO, CONFIG, catalog=catalog).save(directory)
    return directory


def test_loaded_filter_has_the_saved_statistics(directory, acme_filters, arrays, same_policy):
    policy = rlcatalog.build(THREE_NUMBERS, TWO, CONFIG, catalog=make_catalog(acme_filters))
    policy.preprocess(sample_observations(seed=3), update=True)
    policy.save(directory)

    loaded = loading.load(directory, catalog=make_catalog(acme_filters))

    assert arrays(directory, "filter").is_file()
    assert loaded.filter.n == 5  # it learned from five observations
    np.testing.assert_array_equal(loaded.filter.total, policy.filter.total)
    same_policy(policy, loaded, sample_observations(seed=0))


def test_load_uses_the_saved_filter_class(saved, acme_filters):
    catalog = make_catalog(acme_filters)
    catalog.register(FilterSpec("acme_filters_mean", {"numpy": "made_up_parts:AnotherFilter"}, ""))

    assert type(loading.load(saved, catalog=catalog).filter) is SubtractsMean


def test_save_without_the_statistics_of_its_filter_is_rejected(saved, acme_filters, arrays, edit):
    manifest = edit(saved)  # changes nothing
    weights = arrays(saved).name
    edit(saved, files={weights: manifest["files"][weights]})

    with pytest.raises(SavedPolicyError, match=r"incomplete; missing: \['filter-"):
        loading.load(saved, catalog=make_catalog(acme_filters))


def test_missing_plugin_of_a_filter_is_named_with_its_version(saved, refused):
    # `refused` loads with a catalog that lacks the plugin.
    message = refused(saved, "acme-filters", CatalogError)

    assert "acme-filters 7.8" in message
