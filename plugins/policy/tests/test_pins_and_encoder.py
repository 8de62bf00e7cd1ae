"""What engines need of the kernel without a model: names of what was chosen, encoded observations
and masks.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.actions import ActionMasks
from rlcatalog.choice import Explanation, Pins, selection
from rlcatalog.errors import ActionMaskError, MissingPluginError, UnknownNameError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import Encoder, loading

MASKED = spaces.Dict(
    {"action_mask": spaces.MultiBinary(3), "x": spaces.Box(-1, 1, (2,)), "kind": spaces.Discrete(2)}
)
THREE = spaces.Discrete(3)
NAMES = ("fcnet", "lstm", "categorical", "multi_action", "filters", "preprocessors")
CONFIG = {
    "fcnet_hiddens": [3],
    "use_lstm": True,
    "lstm_cell_size": 2,
    "observation_filter": "MeanStdFilter",
}


@pytest.fixture(scope="module")
def catalog():
    return Catalog([point for point in scan() if point.name.replace("-", "_") in NAMES], environ={})


def observations(n, allowed):
    rng = np.random.default_rng(3)
    return {
        "action_mask": np.array(allowed, np.int8),
        "x": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        "kind": rng.integers(0, 2, n),
    }


# --- pins -----------------------------------------------------------------------------------------


def test_pins_name_everything_that_was_chosen(catalog):
    seen = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "kind": spaces.Discrete(2)})
    pins = Pins.of(catalog.resolve(seen, spaces.Tuple([THREE, THREE]), CONFIG, "torch"))
    assert pins.parts == {
        "filter": "rlcatalog-filters/MeanStdFilter",
        "trunk": "rlcatalog-fcnet/fcnet",
        "memory": "rlcatalog-lstm/lstm",
    }
    assert set(pins.preprocessors) == {"obs", "obs['x']", "obs['kind']"}
    assert pins.action_dists["action"] == "rlcatalog-multi-action/multi_action"
    assert pins.action_dists["action[1]"] == "rlcatalog-categorical/categorical"
    assert set(pins.versions) >= {"rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-preprocessors"}
    assert Pins(**json.loads(json.dumps(pins.as_dict()))) == pins


def test_lookup_is_repeated_by_its_pins_without_asking_anyone(catalog, monkeypatch):
    first = catalog.resolve(MASKED, THREE, CONFIG, "torch")
    asked = []
    judge = selection.verdict
    monkeypatch.setattr(
        selection,
        "verdict",
        lambda component, request: asked.append(component) or judge(component, request),
    )
    again = catalog.resolve(MASKED, THREE, CONFIG, "torch", pins=Pins.of(first))
    assert asked == []
    assert Pins.of(again) == Pins.of(first)
    assert again.choices["head"].component is None
    assert "chosen before" in Explanation(again).as_dict()["model"]["reason"]
    # Without pins, the spy sees candidates.
    catalog.resolve(MASKED, THREE, {**CONFIG, "lstm_cell_size": 3}, "torch")
    assert asked


def test_saved_policy_is_loaded_without_asking_anyone(catalog, monkeypatch, tmp_path):
    rlcatalog.build(MASKED, THREE, CONFIG, "torch", catalog=catalog).save(tmp_path / "saved")
    asked = []
    monkeypatch.setattr(
        selection, "verdict", lambda component, request: asked.append(component.name)
    )
    assert loading.load(tmp_path / "saved", catalog=catalog).framework == "torch"
    assert asked == []


@pytest.mark.parametrize(
    ("pins", "error"),
    [
        (Pins({"trunk": "example-compass/example_compass_glu"}), MissingPluginError),
        (Pins(preprocessors={"obs": "rlcatalog-preprocessors/nonesuch"}), UnknownNameError),
        (Pins(action_dists={"action": "nobody/dist"}), MissingPluginError),
    ],
)
def test_pins_of_what_is_not_here_are_refused(catalog, pins, error):
    with pytest.raises(error):
        pins.check(catalog.registry)


# --- the encoder ----------------------------------------------------------------------------------


def test_encoder_gives_what_a_policy_gives(catalog):
    config = {"fcnet_hiddens": [3]}
    policy = rlcatalog.build(MASKED, THREE, config, "torch", catalog=catalog)
    encoder = Encoder(catalog, catalog.resolve(MASKED, THREE, config, "torch"))
    batch = observations(2, [[1, 0, 1], [0, 1, 0]])
    rows = [{key: value[i] for key, value in batch.items()} for i in range(2)]
    np.testing.assert_array_equal([encoder.encode(row) for row in rows], policy.preprocess(batch))
    np.testing.assert_array_equal([encoder.mask_of(row) for row in rows], policy.action_mask(batch))
    # by hand: the leaves stand in the order of their keys, the mask is no part of what is encoded
    by_hand = np.concatenate([np.eye(2)[batch["kind"]], batch["x"]], axis=1)
    np.testing.assert_allclose(policy.preprocess(batch), by_hand, atol=1e-7)


def test_a_mask_that_allows_nothing_is_no_error_once_the_episode_is_over(catalog):
    encoder = Encoder(catalog, catalog.resolve(MASKED, THREE, {}, "torch"))
    nothing = {key: value[0] for key, value in observations(1, [[0, 0, 0]]).items()}
    with pytest.raises(ActionMaskError, match="allows no action"):
        encoder.mask_of(nothing)
    assert encoder.mask_of(nothing, over=True).tolist() == [True, True, True]


def test_a_mask_from_elsewhere_goes_with_an_observation_without_one(catalog):
    encoder = Encoder(catalog, catalog.resolve(spaces.Box(-1, 1, (2,)), THREE, {}, "torch"))
    assert encoder.mask_of(np.zeros(2), np.array([0, 1, 1])).tolist() == [False, True, True]


def test_masks_are_checked_once_per_act(catalog, monkeypatch):
    policy = rlcatalog.build(MASKED, THREE, {"fcnet_hiddens": [3]}, "torch", catalog=catalog)
    checked = []
    matrix = ActionMasks.matrix
    monkeypatch.setattr(
        ActionMasks, "matrix", lambda self, *a, **k: checked.append(1) or matrix(self, *a, **k)
    )
    step = policy.act(observations(2, [[0, 0, 1], [0, 1, 0]]), explore=False)
    assert step.action.tolist() == [2, 1]
    assert len(checked) == 1
    policy.act(observations(2, [[0, 0, 1], [0, 1, 0]]), mask=np.array([[1, 0, 0], [1, 0, 0]]))
    assert len(checked) == 2
    with pytest.raises(ActionMaskError):  # one row fewer than observations
        policy.act(observations(2, [[0, 0, 1]]))
