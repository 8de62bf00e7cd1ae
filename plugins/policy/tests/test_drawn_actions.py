"""Actions of third-party distributions and models: none outside of the space or the mask reaches
the environment.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog import ActionDistribution
from rlcatalog.errors import ActionMaskError, ModelContractError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

BOX, FIVE = Box(-1, 1, (3,), np.float32), Discrete(5)
SMALL = {"fcnet_hiddens": [8]}
both = pytest.mark.parametrize("framework", ["torch", "tf"])


def drawing(framework, values, dtype=np.int64):
    """Return a distribution that always draws the same action."""
    library = torch if framework == "torch" else tf

    class Stubborn(ActionDistribution):
        def sample(self):
            self.last_sample = library.stack(
                [library.ones_like(self.inputs[:, 0]) * 0 + v for v in values], -1
            )
            kind = {np.int64: library.int64, np.float32: library.float32}[dtype]
            self.last_sample = (
                self.last_sample.to(kind)
                if framework == "torch"
                else tf.cast(self.last_sample, kind)
            )
            self.last_sample = self.last_sample[:, 0] if len(values) == 1 else self.last_sample
            return self.last_sample

        deterministic_sample = sample

        def logp(self, actions):
            return self.inputs[:, 0]

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 2

    return Stubborn


CASES = {
    "Discrete": (
        Discrete(2),
        [6],
        r"action: expected an integer from 0 to 1 for Discrete\(2\), found 6 in row 0",
    ),
    "below": (Discrete(2, start=5), [-1], r"expected an integer from 0 to 1.*found -1"),
    "MultiDiscrete": (MultiDiscrete([3, 2]), [2, 2], r"expected an integer from 0 to 1.*found 2"),
    "MultiBinary": (MultiBinary(2), [1, 3], r"expected an integer from 0 to 1.*found 3"),
}


@pytest.mark.grid
@both
@pytest.mark.parametrize(("action", "values", "text"), CASES.values(), ids=CASES)
def test_an_action_outside_of_the_space_is_refused(framework, action, values, text):
    policy = rlcatalog.build(
        BOX, action, {**SMALL, "custom_action_dist": drawing(framework, values)}, framework
    )
    for explore in (True, False):
        with pytest.raises(
            ModelContractError, match=f"Stubborn drew an action outside the action space: .*{text}"
        ):
            policy.act(np.zeros((2, 3), np.float32), explore=explore)
    # As bridges to other engines adapt them.
    with pytest.raises(ModelContractError, match="Stubborn drew"):
        policy.adapt(np.array([values]))


@both
def test_one_inside_and_floats_beyond_their_bounds_are_served(framework):
    config = {**SMALL, "custom_action_dist": drawing(framework, [1])}
    assert rlcatalog.build(BOX, Discrete(2, start=3), config, framework).act(
        np.zeros((1, 3))
    ).action.tolist() == [4]
    config = {**SMALL, "custom_action_dist": drawing(framework, [7.0, -7.0], np.float32)}
    step = rlcatalog.build(BOX, Box(-1, 1, (2,), np.float32), config, framework).act(
        np.zeros((1, 3), np.float32)
    )
    assert step.action.tolist() == [[1.0, -1.0]]


@both
def test_the_leaf_is_named(framework):
    action = Tuple([Box(-1, 1, (1,), np.float32), Dict({"go": Discrete(2)})])
    config = {**SMALL, "custom_action_dist": {"action[1]['go']": drawing(framework, [6])}}
    policy = rlcatalog.build(BOX, action, config, framework)
    with pytest.raises(
        ModelContractError, match=r"Stubborn drew .*: action\[1\]\['go'\]: expected an integer.*6"
    ):
        policy.act(np.zeros((1, 3), np.float32))


def test_parts_of_rlcatalogs_own_are_not_looked_at():
    policy = rlcatalog.build(BOX, Discrete(2), SMALL, "torch")
    assert not policy.contract.checks_actions
    masked = rlcatalog.build(Dict({"action_mask": MultiBinary(5), "x": BOX}), FIVE, SMALL, "torch")
    assert not masked.contract.checks_actions


# --- who masks ------------------------------------------------------------------------------------


def reading(framework, sign):
    """Return a model that masks by itself: by `sign` what the mask forbids (1), what it allows
    (-1), or nothing.
    """
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class Reading(base):
        def forward(self, input_dict, state, seq_lens):
            mask = input_dict["obs"]["action_mask"]
            barred = {1: 1 - mask, -1: mask, 0: mask * 0}[sign]
            self.values = mask[:, 0] * 0
            lowest = np.finfo(np.float32).min
            return (
                barred * lowest if framework == "torch" else tf.cast(barred, tf.float32) * lowest
            ), state

        def value_function(self):
            return self.values

    return Reading


OBS = {"action_mask": np.array([[0, 0, 1, 0, 1]] * 40, np.int8), "x": np.zeros((40, 3), np.float32)}
SPACE = Dict({"action_mask": Box(0, 1, (5,), np.float32), "x": BOX})


@both
@pytest.mark.parametrize("sign", [1, 0])
def test_a_model_that_reads_the_mask_as_it_is_meant_or_ignores_it_is_served(framework, sign):
    policy = rlcatalog.build(SPACE, FIVE, {"custom_model": reading(framework, sign)}, framework)
    assert set(policy.act(OBS).action) <= {2, 4}
    assert "the model sees it; rlcatalog masks the outputs" in repr(policy.explain())


@both
def test_a_model_that_goes_against_the_mask_is_refused(framework):
    policy = rlcatalog.build(SPACE, FIVE, {"custom_model": reading(framework, -1)}, framework)
    text = (
        r"mask: row \d+: the raw action \[[013]\] was drawn, but the mask allows \{'action': \[2,"
        r" 4\]\}\. rlcatalog masks the outputs of the model itself \(True or 1 allows\);"
        r" Reading\.forward\(\) or .* overrides that\."
    )
    with pytest.raises(ActionMaskError, match=text):
        policy.act(OBS)
    named = rlcatalog.build(
        SPACE, FIVE, {"custom_model": reading(framework, -1), "action_mask_key": "none"}, framework
    )
    assert set(named.act(OBS).action) <= {0, 1, 3}
