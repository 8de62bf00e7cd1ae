"""Pins: the names of what a lookup chose, with which the lookup is repeated without choosing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.choice import Explanation, PartAddresses, selection
from rlcatalog.errors import MissingPluginError, UnknownNameError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading

OBS = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32), "kind": spaces.Discrete(2)})
THREE_ACTIONS = spaces.Discrete(3)
CONFIG = {
    "fcnet_hiddens": [3],
    "use_lstm": True,
    "lstm_cell_size": 2,
    "observation_filter": "MeanStdFilter",
}


@pytest.fixture(scope="module")
def catalog():
    names = ("fcnet", "lstm", "categorical", "multi_action", "filters", "preprocessors")
    points = [point for point in scan() if point.name.replace("-", "_") in names]
    return Catalog(points, environ={})


@pytest.fixture
def judged_parts(monkeypatch):
    """A list of the parts whose declarations are asked whether they match a request."""
    parts = []
    real_match_of = selection.match_of

    def match_of(part, request):
        parts.append(part.name)
        return real_match_of(part, request)

    monkeypatch.setattr(selection, "match_of", match_of)
    return parts


def test_pins_name_the_parts_of_the_model_and_the_filter(catalog):
    pins = PartAddresses.of(catalog.resolve(OBS, THREE_ACTIONS, CONFIG, "torch"))

    assert pins.by_slot == {
        "filter": "rlcatalog-filters/MeanStdFilter",
        "trunk": "rlcatalog-fcnet/fcnet",
        "memory": "rlcatalog-lstm/lstm",
    }


def test_pins_name_a_preprocessor_for_each_space(catalog):
    pins = PartAddresses.of(catalog.resolve(OBS, THREE_ACTIONS, CONFIG, "torch"))

    assert set(pins.preprocessors) == {"obs", "obs['x']", "obs['kind']"}


def test_pins_name_a_distribution_for_each_action(catalog):
    pair = spaces.Tuple([THREE_ACTIONS, THREE_ACTIONS])

    pins = PartAddresses.of(catalog.resolve(OBS, pair, CONFIG, "torch"))

    assert pins.action_dists["action"] == "rlcatalog-multi-action/multi_action"
    assert pins.action_dists["action[1]"] == "rlcatalog-categorical/categorical"


def test_pins_contain_the_versions_of_packages(catalog):
    pins = PartAddresses.of(catalog.resolve(OBS, THREE_ACTIONS, CONFIG, "torch"))

    assert set(pins.versions) >= {"rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-preprocessors"}


def test_pins_come_back_from_json(catalog):
    pins = PartAddresses.of(catalog.resolve(OBS, THREE_ACTIONS, CONFIG, "torch"))

    assert PartAddresses.from_dict(json.loads(json.dumps(pins.as_dict()))) == pins


def test_lookup_with_pins_judges_no_parts(catalog, judged_parts):
    first = catalog.resolve(OBS, THREE_ACTIONS, CONFIG, "torch")
    judged_parts.clear()

    again = catalog.resolve(OBS, THREE_ACTIONS, CONFIG, "torch", pins=PartAddresses.of(first))

    assert judged_parts == []
    assert PartAddresses.of(again) == PartAddresses.of(first)
    assert again.choices["head"].part is None
    assert "chosen before" in Explanation(again).as_dict()["model"]["reason"]


def test_lookup_without_pins_judges_parts(catalog, judged_parts):
    # Another config than in the other tests, because the catalog remembers lookups.
    catalog.resolve(OBS, THREE_ACTIONS, {**CONFIG, "lstm_cell_size": 3}, "torch")

    assert judged_parts != []


def test_load_judges_no_parts(catalog, judged_parts, tmp_path):
    rlcatalog.build(OBS, THREE_ACTIONS, CONFIG, "torch", catalog=catalog).save(tmp_path / "saved")
    judged_parts.clear()

    loaded = loading.load(tmp_path / "saved", catalog=catalog)

    assert loaded.framework == "torch"
    assert judged_parts == []


@pytest.mark.parametrize(
    ("pins", "error"),
    [
        pytest.param(
            PartAddresses({"trunk": "example-compass/example_compass_glu"}),
            MissingPluginError,
            id="plugin-of-a-model",
        ),
        pytest.param(
            PartAddresses(action_dists={"action": "missing-package/dist"}),
            MissingPluginError,
            id="plugin-of-a-distribution",
        ),
        pytest.param(
            PartAddresses(preprocessors={"obs": "rlcatalog-preprocessors/nonesuch"}),
            UnknownNameError,
            id="name-in-an-installed-plugin",
        ),
    ],
)
def test_check_rejects_pins_that_are_not_installed(catalog, pins, error):
    with pytest.raises(error):
        pins.check(catalog.registry)
