"""What a model is given stays as it was: one that writes into it is refused, in whichever step it
does so.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import TFModelV2, tf
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

VECTOR, TWO = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
PLACES = {
    "a vector": (VECTOR, lambda inputs: inputs["obs"]),
    "float64": (spaces.Box(-1, 1, (4,), np.float64), lambda inputs: inputs["obs"]),
    "an image": (IMAGE, lambda inputs: inputs["obs"]),
    "a leaf of a Dict": (
        spaces.Dict(a=VECTOR, b=spaces.Discrete(3)),
        lambda inputs: inputs["obs"]["a"],
    ),
    "a leaf of a Tuple": (spaces.Tuple([VECTOR, VECTOR]), lambda inputs: inputs["obs"][1]),
    "the last action": (VECTOR, lambda inputs: inputs["prev_actions"]),
    "a window of observations": (VECTOR, lambda inputs: inputs["frames"]),
}


class Writing(TorchModelV2, nn.Module):
    """Fills an input with zeros, from the step on that a test says."""

    place = begins = None

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.layer, self.calls = nn.Linear(int(np.prod(obs_space.shape)), num_outputs), 0
        self.view_requirements["prev_actions"] = ViewRequirement(
            "actions", shift=-1, space=action_space
        )
        self.view_requirements["frames"] = ViewRequirement("obs", shift="-2:0", space=obs_space)

    def forward(self, input_dict, state, seq_lens):
        self.calls += 1
        found = self.layer(input_dict["obs_flat"].float())
        if self.calls >= self.begins:
            type(self).place(input_dict).zero_()
        self.rows = found[:, 0]
        return found, state

    def value_function(self):
        return self.rows


def writing(space, place, begins=1):
    model = type("Writing", (Writing,), {"place": staticmethod(place), "begins": begins})
    return rlcatalog.build(space, TWO, {"custom_model": model}, "torch")


def batch_of(space, rows=2):
    space.seed(0)
    return [space.sample() for _ in range(rows)]


REFUSED = r"^Writing\.forward\(\) must not write into its inputs; input_dict\['{}"


@pytest.mark.parametrize("place", PLACES)
def test_a_model_that_writes_into_an_input_is_refused_at_the_first_act(place):
    space, where = PLACES[place]
    name = {"the last action": "prev_actions", "a window of observations": "frames"}.get(
        place, "obs"
    )
    with pytest.raises(ModelContractError, match=REFUSED.format(name)):
        writing(space, where).act(batch_of(space))


def test_a_write_that_only_later_steps_do_is_refused_where_it_happens():
    policy, obs = writing(VECTOR, PLACES["a vector"][1], begins=4), batch_of(VECTOR)
    state = None
    for _ in range(3):
        state = policy.act(obs, state).state
    with pytest.raises(ModelContractError, match=REFUSED.format("obs")):
        policy.act(obs, state)


def test_values_and_evaluations_are_looked_at_too():
    policy = writing(VECTOR, PLACES["a vector"][1], begins=2)
    step = policy.act(batch_of(VECTOR))
    obs = np.ones((2, 4), np.float32)
    with pytest.raises(ModelContractError, match=REFUSED.format("obs")):
        policy.values(obs)
    # a tensor that was written before is none's fault.
    for given in (obs, torch.ones(2, 4), torch.ones(2, 4).add_(1)):
        with pytest.raises(ModelContractError, match=REFUSED.format("obs")):
            policy.evaluate({"obs": given, "raw_action": step.raw_action, "views": step.state.seen})


def test_a_tensor_that_was_written_before_is_evaluated():
    policy = rlcatalog.build(VECTOR, TWO, {"fcnet_hiddens": [4]}, "torch")
    policy.evaluate({"obs": torch.zeros(2, 4).add_(1), "raw_action": np.zeros((2, 1), np.float32)})


@pytest.mark.parametrize("given", [np.float32, np.float64])
def test_the_memory_of_the_step_before_is_looked_at(given):
    class Halving(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            nn.Module.__init__(self)
            self.layer = nn.Linear(4, self.num_outputs)

        def get_initial_state(self):
            return [np.ones(3, given)]

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), [state[0] + 1] if state[0].max() < 3 else [
                state[0].mul_(0.5)
            ]

    policy = rlcatalog.build(VECTOR, TWO, {"custom_model": Halving}, "torch")
    obs, state = batch_of(VECTOR), None
    for _ in range(2):
        state = policy.act(obs, state).state
    with pytest.raises(
        ModelContractError,
        match=r"^Halving\.forward\(\) must not write into its inputs; state\[0\]",
    ):
        policy.act(obs, state)


def test_a_state_that_is_the_observation_does_not_change_with_it():
    class Remembering(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            nn.Module.__init__(self)
            self.layer = nn.Linear(4, self.num_outputs)

        def get_initial_state(self):
            return [np.zeros(4, np.float32)]

        def forward(self, input_dict, state, seq_lens):
            return self.layer(state[0]), [input_dict["obs"]]

    policy = rlcatalog.build(VECTOR, TWO, {"custom_model": Remembering}, "torch")
    obs = np.ones((2, 4), np.float32)
    state = policy.act(obs).state
    obs[:] = 0.5  # an environment may fill one array again and again
    np.testing.assert_array_equal(state.memory[0], 1)


def test_tensorflow_tensors_cannot_be_written():
    class Trying(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = tf.keras.layers.Dense(self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            if tf.executing_eagerly():
                input_dict["obs"].numpy()[:] = 0
            return self.layer(input_dict["obs"]), state

    policy = rlcatalog.build(VECTOR, TWO, {"custom_model": Trying}, "tf")
    obs = np.ones((2, 4), np.float32)
    step = policy.act(obs)
    policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    np.testing.assert_array_equal(obs, 1)
