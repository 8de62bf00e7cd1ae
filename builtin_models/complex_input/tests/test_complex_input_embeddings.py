"""Ids that the nets for the parts of an observation look up in tables."""

from __future__ import annotations

import numpy as np
import pytest
from builders import sample_observations
from gymnasium import spaces
from model_runs import compute_gradients, set_random_weights

import rlcatalog
from rlcatalog.models import weights_of
from rlcatalog.spaces import Repeated

pytestmark = pytest.mark.twins
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

PAIR = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
TWO_ACTIONS = spaces.Discrete(2)


def build(space, embeddings, framework, **config):
    """Return a policy whose features are the parts themselves, with random weights."""
    config = {
        "custom_model": "complex_input",
        "embeddings": embeddings,
        "fcnet_hiddens": [],
        **config,
    }
    policy = rlcatalog.build(space, TWO_ACTIONS, config, framework)
    set_random_weights(policy.model)
    return policy


def logits_of(policy, features):
    """Return the logits that the last layer makes of features."""
    weights = policy.model.get_weights()
    return features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]


@frameworks
def test_entry_is_looked_up_in_its_own_net(framework):
    space = spaces.Dict({"item": spaces.Discrete(4, start=3), "speed": PAIR})
    policy = build(space, {"item": 3}, framework)

    step = policy.act([{"item": 5, "speed": np.float32([0.5, -1])}])

    row = policy.model.get_weights()["nets.0.input_embedding.tables.0.weight"][2]  # counted from 3
    features = np.concatenate([row, [0.5, -1]])[None]
    np.testing.assert_allclose(step.dist_inputs, logits_of(policy, features), atol=1e-5)


@frameworks
def test_items_of_a_list_are_averaged(framework):
    units = Repeated(spaces.Dict({"kind": spaces.Discrete(4, start=1)}), 3)
    policy = build(spaces.Dict({"units": units}), {"units[:].kind": 2}, framework)

    step = policy.act([{"units": [{"kind": 4}, {"kind": 1}]}, {"units": []}])

    table = policy.model.get_weights()["nets.0.input_embedding.tables.0.weight"]
    # The mean of the items, and how full the list is.
    features = np.array([[*(table[3] + table[0]) / 2, 2 / 3], [0, 0, 0]])
    np.testing.assert_allclose(step.dist_inputs, logits_of(policy, features), atol=1e-5)


@frameworks
def test_texts_of_a_list_are_averaged(framework):
    words = Repeated(spaces.Text(3, min_length=0, charset="ab"), 2)
    policy = build(spaces.Dict({"speed": PAIR, "words": words}), {"words[:]": 2}, framework)

    step = policy.act([{"speed": np.zeros(2, np.float32), "words": ["abb", "b"]}])

    table = policy.model.get_weights()["nets.1.input_embedding.tables.0.weight"]
    # The mean of the texts, each of which is the mean of its characters.
    mean = ((table[0] + 2 * table[1]) / 3 + table[1]) / 2
    features = np.concatenate([[0, 0], mean, [1]])[None]
    np.testing.assert_allclose(step.dist_inputs, logits_of(policy, features), atol=1e-5)


@frameworks
def test_empty_places_have_no_gradient(framework):
    units = Repeated(spaces.Discrete(4), 3)
    policy = build(spaces.Dict({"units": units}), {"units[:]": 2}, framework)
    encoded = policy.preprocess([{"units": [2]}])

    gradient = compute_gradients(policy.model, encoded)["nets.0.input_embedding.tables.0.weight"]

    # Empty places hold 0, which is also an id.
    has_gradient = np.abs(gradient).max(axis=1) > 0
    assert has_gradient.tolist() == [False, False, True, False]


@frameworks
def test_filtered_list_keeps_its_ids(framework):
    # A filter of another entry of the items makes Boxes of all of them.
    units = Repeated(spaces.Dict({"at": PAIR, "kind": spaces.Discrete(3, start=5)}), 2)
    space = spaces.Dict({"speed": PAIR, "units": units})

    policy = build(space, {"units[:].kind": 2}, framework, observation_filter="MeanStdFilter")

    assert np.isfinite(policy.act(sample_observations(space, 3)).dist_inputs).all()


@frameworks
@pytest.mark.parametrize("vf_share_layers", [True, False])
def test_stages_announce_every_weight(vf_share_layers, framework):
    space = spaces.Dict(
        {"eye": IMAGE, "item": spaces.Discrete(40), "units": Repeated(spaces.Discrete(7), 2)}
    )
    config = {
        "embeddings": {"item": 5, "units[:]": 3},
        "fcnet_hiddens": [6],
        "vf_share_layers": vf_share_layers,
    }

    policy = rlcatalog.build(space, TWO_ACTIONS, config, framework)

    announced = sum(stage.weights for stage in policy.explain().resolution.stages)
    assert announced == sum(array.size for array in weights_of(policy.model).values())


def test_other_integers_stay_one_hots():
    space = spaces.Dict({"eye": IMAGE, "gear": spaces.Discrete(3), "item": spaces.Discrete(40)})

    stages = rlcatalog.explain(space, TWO_ACTIONS, {"embeddings": {"item": 5}}).as_dict()["shapes"]

    embedded = [stage["stage"] for stage in stages if "embedding of" in stage["stage"]]
    assert embedded == [
        "complex_input: obs['item']: fcnet: embedding of obs['item'] (table of 40 x 5)"
    ]
