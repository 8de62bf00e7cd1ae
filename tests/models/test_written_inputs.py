"""Models that write into their inputs, which is an error in any step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import sample_observations
from gymnasium import spaces
from torch import nn

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import TFModelV2, tf
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
TWO_ACTIONS = spaces.Discrete(2)


class WritesIntoInputs(TorchModelV2, nn.Module):
    """Fills an input with zeros.

    Attributes:
        select: Function that returns the input, given `input_dict`.
        first_call: Number of the first call that writes.
    """

    select = None
    first_call = 1

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.layer = nn.Linear(int(np.prod(obs_space.shape)), num_outputs)
        self.calls = 0
        self.view_requirements["prev_actions"] = ViewRequirement(
            "actions", shift=-1, space=action_space
        )
        self.view_requirements["frames"] = ViewRequirement("obs", shift="-2:0", space=obs_space)

    def forward(self, input_dict, state, seq_lens):
        self.calls += 1
        outputs = self.layer(input_dict["obs_flat"].float())
        if self.calls >= self.first_call:
            type(self).select(input_dict).zero_()
        self.value = outputs[:, 0]
        return outputs, state

    def value_function(self):
        return self.value


def select_obs(input_dict):
    return input_dict["obs"]


def build_writing_policy(space=FOUR_FEATURES, select=select_obs, first_call=1):
    class Writing(WritesIntoInputs):
        pass

    Writing.select = staticmethod(select)
    Writing.first_call = first_call
    return rlcatalog.build(space, TWO_ACTIONS, {"custom_model": Writing}, "torch")


def message_for(name):
    return rf"^Writing\.forward\(\) must not write into its inputs; input_dict\['{name}"


# --- observations and views -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "select", "name"),
    [
        (FOUR_FEATURES, select_obs, "obs"),
        (spaces.Box(-1, 1, (4,), np.float64), select_obs, "obs"),
        (IMAGE, select_obs, "obs"),
        (
            spaces.Dict(a=FOUR_FEATURES, b=spaces.Discrete(3)),
            lambda inputs: inputs["obs"]["a"],
            "obs",
        ),
        (spaces.Tuple([FOUR_FEATURES, FOUR_FEATURES]), lambda inputs: inputs["obs"][1], "obs"),
        (FOUR_FEATURES, lambda inputs: inputs["prev_actions"], "prev_actions"),
        (FOUR_FEATURES, lambda inputs: inputs["frames"], "frames"),
    ],
    ids=["vector", "float64", "image", "leaf of Dict", "leaf of Tuple", "last action", "window"],
)
def test_write_into_an_input_is_refused_at_the_first_act(space, select, name):
    policy = build_writing_policy(space, select)
    with pytest.raises(ModelContractError, match=message_for(name)):
        policy.act(sample_observations(space, rows=2))


def test_write_in_a_later_step_is_refused_there():
    policy = build_writing_policy(first_call=4)
    obs = sample_observations(FOUR_FEATURES, rows=2)
    state = None
    for _ in range(3):
        state = policy.act(obs, state).state

    with pytest.raises(ModelContractError, match=message_for("obs")):
        policy.act(obs, state)


def test_write_is_refused_by_values():
    policy = build_writing_policy(first_call=2)
    policy.act(sample_observations(FOUR_FEATURES, rows=2))
    with pytest.raises(ModelContractError, match=message_for("obs")):
        policy.values(np.ones((2, 4), np.float32))


@pytest.mark.parametrize(
    "obs",
    [np.ones((2, 4), np.float32), torch.ones(2, 4), torch.ones(2, 4).add_(1)],
    ids=["array", "tensor", "tensor written before"],
)
def test_write_is_refused_by_evaluate(obs):
    policy = build_writing_policy(first_call=2)
    step = policy.act(sample_observations(FOUR_FEATURES, rows=2))
    batch = {"obs": obs, "raw_action": step.raw_action, "views": step.state.views}
    with pytest.raises(ModelContractError, match=message_for("obs")):
        policy.evaluate(batch)


def test_evaluate_accepts_a_tensor_written_before():
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [4]}, "torch")
    written = torch.zeros(2, 4).add_(1)
    policy.evaluate({"obs": written, "raw_action": np.zeros((2, 1), np.float32)})


# --- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_write_into_the_state_is_refused(dtype):
    class WritesIntoState(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            nn.Module.__init__(self)
            self.layer = nn.Linear(4, self.num_outputs)

        def get_initial_state(self):
            return [np.ones(3, dtype)]

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), [state[0].mul_(2)]  # in place

    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": WritesIntoState}, "torch")
    with pytest.raises(ModelContractError, match=r"not write into its inputs; state\[0\]"):
        policy.act(sample_observations(FOUR_FEATURES, rows=2))


def test_state_is_a_copy_of_the_observation():
    class RemembersObservation(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            nn.Module.__init__(self)
            self.layer = nn.Linear(4, self.num_outputs)

        def get_initial_state(self):
            return [np.zeros(4, np.float32)]

        def forward(self, input_dict, state, seq_lens):
            new_state = [input_dict["obs"]]
            return self.layer(input_dict["obs"]), new_state

    config = {"custom_model": RemembersObservation}
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, "torch")
    obs = np.ones((2, 4), np.float32)

    state = policy.act(obs).state
    obs[:] = 0.5  # as an environment does that fills one array in each step

    np.testing.assert_array_equal(state.memory[0], np.ones((2, 4)))


def test_tensorflow_model_cannot_change_observations():
    class WritesIntoArray(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = tf.keras.layers.Dense(self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            if tf.executing_eagerly():  # a traced tensor has no array
                input_dict["obs"].numpy()[:] = 0
            return self.layer(input_dict["obs"]), state

    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, {"custom_model": WritesIntoArray}, "tf")
    obs = np.ones((2, 4), np.float32)

    step = policy.act(obs)
    policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    np.testing.assert_array_equal(obs, np.ones((2, 4)))
