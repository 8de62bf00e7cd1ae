"""Saved policies with a filter: its statistics, its class, and its plugin."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog import FilterSpec
from rlcatalog.errors import CatalogError
from rlcatalog_policy import loading

THREE_NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
CONFIG = {"observation_filter": "acme_filters_mean"}


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
    rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, CONFIG, catalog=catalog).save(directory)
    return directory


def test_loaded_filter_has_the_saved_statistics(directory, acme_filters, assert_same_policy):
    catalog = make_catalog(acme_filters)
    policy = rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, CONFIG, catalog=catalog)
    policy.preprocess(np.float32([[1, 1, 1], [0, 0.5, 1]]), update=True)
    policy.save(directory)

    loaded = loading.load(directory, catalog=make_catalog(acme_filters))

    assert loaded.filter.n == 2  # the filter learned from two observations
    assert loaded.filter.total.tolist() == [1, 1.5, 2]
    assert_same_policy(policy, loaded, np.zeros((1, 3), np.float32))


def test_load_uses_the_saved_filter_class(saved, acme_filters):
    catalog = make_catalog(acme_filters)
    catalog.register(FilterSpec("acme_filters_mean", {"numpy": "made_up_parts:AnotherFilter"}, ""))

    assert type(loading.load(saved, catalog=catalog).filter) is SubtractsMean


def test_missing_plugin_of_a_filter_is_named_with_its_version(saved, load_error):
    # `load_error` loads with a catalog that lacks the plugin.
    message = load_error(saved, "acme-filters", CatalogError)

    assert "acme-filters 7.8" in message
