"""Actions of third-party distributions and models: those outside of the space, and those that the
mask forbids, do not reach the environment.
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

THREE_NUMBERS = Box(-1, 1, (3,), np.float32)
FIVE_ACTIONS = Discrete(5)
SMALL = {"fcnet_hiddens": [8]}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


# --- the space ------------------------------------------------------------------------------------


def make_dist_that_draws(framework, action):
    """Return a distribution that draws this action in each row."""
    action = np.array(action)

    class Stubborn(ActionDistribution):
        def sample(self):
            if framework == "torch":
                rows = len(self.inputs)
                self.last_sample = torch.as_tensor(np.stack([action] * rows))
            else:
                shape = tf.stack([tf.shape(self.inputs)[0], *action.shape])
                self.last_sample = tf.broadcast_to(tf.constant(action), shape)
            return self.last_sample

        deterministic_sample = sample

        def logp(self, actions):
            return self.inputs[:, 0]

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 2

    return Stubborn


def build_policy_that_draws(framework, action_space, action):
    config = {**SMALL, "custom_action_dist": make_dist_that_draws(framework, action)}
    return rlcatalog.build(THREE_NUMBERS, action_space, config, framework)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(
    ("action_space", "action", "wrong_number"),
    [
        pytest.param(Discrete(2), 6, 6, id="discrete"),
        pytest.param(Discrete(2), -1, -1, id="below-0"),
        pytest.param(MultiDiscrete([3, 2]), [2, 2], 2, id="multi-discrete"),  # the second choice
        pytest.param(MultiBinary(2), [1, 3], 3, id="multi-binary"),
    ],
)
@pytest.mark.parametrize("explore", [True, False])
def test_action_outside_of_the_space_is_an_error(
    framework, action_space, action, wrong_number, explore
):
    policy = build_policy_that_draws(framework, action_space, action)

    with pytest.raises(ModelContractError, match="Stubborn drew an action outside") as caught:
        policy.act(np.zeros((2, 3), np.float32), explore=explore)

    # In each space, the wrong number is for a choice out of two.
    assert "expected an integer from 0 to 1 for " in str(caught.value)
    assert f", found {wrong_number} in row 0" in str(caught.value)


@both_frameworks
def test_action_inside_of_the_space_is_adapted(framework):
    policy = build_policy_that_draws(framework, Discrete(2, start=3), 1)

    step = policy.act(np.zeros((1, 3)))

    assert step.action.tolist() == [4]  # 1 + start


@both_frameworks
def test_numbers_beyond_the_bounds_are_clipped(framework):
    two_numbers = Box(-1, 1, (2,), np.float32)
    policy = build_policy_that_draws(framework, two_numbers, np.float32([7, -7]))

    step = policy.act(np.zeros((1, 3), np.float32))

    assert step.action.tolist() == [[1, -1]]


@both_frameworks
def test_error_names_the_part_of_a_nested_action(framework):
    action_space = Tuple([Box(-1, 1, (1,), np.float32), Dict({"go": Discrete(2)})])
    draws_6 = make_dist_that_draws(framework, 6)
    config = {**SMALL, "custom_action_dist": {"action[1]['go']": draws_6}}
    policy = rlcatalog.build(THREE_NUMBERS, action_space, config, framework)

    with pytest.raises(ModelContractError, match=r"\[1\]\['go'\]: expected an integer.*6"):
        policy.act(np.zeros((1, 3), np.float32))


# --- the mask -------------------------------------------------------------------------------------


def make_model_that_forbids(framework, actions):
    """Return a model that sees the mask and forbids actions by itself, with the lowest logits.

    `actions` says which: the actions that the mask allows ("allowed") or forbids ("forbidden"), or
    "none". All others are equally likely.
    """
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class MasksItself(base):
        def forward(self, input_dict, state, seq_lens):
            mask = input_dict["obs"]["action_mask"]
            forbidden = {"allowed": mask, "forbidden": 1 - mask, "none": mask * 0}[actions]
            if framework == "tf":
                forbidden = tf.cast(forbidden, tf.float32)
            self.values = mask[:, 0] * 0
            return forbidden * np.finfo(np.float32).min, state

        def value_function(self):
            return self.values

    return MasksItself


#: 40 observations that allow the actions 2 and 4.
ALLOWS_2_AND_4 = {
    "action_mask": np.array([[0, 0, 1, 0, 1]] * 40, np.int8),
    "x": np.zeros((40, 3), np.float32),
}
#: The mask is a Box, which the model sees.
SPACE_WITH_VISIBLE_MASK = Dict({"action_mask": Box(0, 1, (5,), np.float32), "x": THREE_NUMBERS})


def build_policy_that_forbids(framework, actions, **config):
    model = make_model_that_forbids(framework, actions)
    config = {"custom_model": model, **config}
    return rlcatalog.build(SPACE_WITH_VISIBLE_MASK, FIVE_ACTIONS, config, framework)


@both_frameworks
@pytest.mark.parametrize("forbidden_by_model", ["forbidden", "none"])
def test_model_may_obey_or_ignore_a_mask_that_it_sees(framework, forbidden_by_model):
    policy = build_policy_that_forbids(framework, forbidden_by_model)

    actions = policy.act(ALLOWS_2_AND_4).action

    assert set(actions) <= {2, 4}
    assert "the model sees it; rlcatalog masks the outputs" in repr(policy.explain())


@both_frameworks
def test_model_that_forbids_the_allowed_actions_is_an_error(framework):
    policy = build_policy_that_forbids(framework, "allowed")

    with pytest.raises(ActionMaskError, match=r"the raw action \[[013]\] was drawn") as caught:
        policy.act(ALLOWS_2_AND_4)

    assert "but the mask allows {'action': [2, 4]}. " in str(caught.value)
    assert " MasksItself.forward() or " in str(caught.value)


@both_frameworks
def test_mask_under_another_key_is_left_to_the_model(framework):
    policy = build_policy_that_forbids(framework, "allowed", action_mask_key="none")

    actions = policy.act(ALLOWS_2_AND_4).action

    # The observation's entry "action_mask" is no mask now, so that the model alone decides.
    assert set(actions) <= {0, 1, 3}
