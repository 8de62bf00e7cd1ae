"""Views of a model's own states, in every form a shift is written in, against a list of all past
states.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

OBS, WIDE = Box(-1e4, 1e4, (2,), np.float32), Box(-1, 1, (12,), np.float32)
BEFORE = -7.0  # the state before an episode began
#: Shift → the steps it names, and whether they stand on an axis of their own.
SHIFTS = [
    (-1, [-1], False),
    (-2, [-2], False),
    (-5, [-5], False),
    ([-1], [-1], True),
    ([-3, -2, -1], [-3, -2, -1], True),
    ([-1, -4], [-1, -4], True),
    ((-5, -2, -2), [-5, -2, -2], True),
    ("-3:-1", [-3, -2, -1], True),
    ("-1:-1", [-1], True),
    ("-3:-2", [-3, -2], True),
    ("-6:-2:2", [-6, -4, -2], True),
    ("-6:-1:2", [-6, -4, -2], True),
    ("-5:-1:3", [-5, -2], True),
]
#: A state's own parts: rows of 1, of 2 × 1 and single numbers.
SHAPES = [(2,), (2, 1), ()]
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def model_of(framework, requirements, initial=(), shape=(2,), returns=1):
    """A model whose output shows the states it was given, and whose new states are its
    observations.
    """
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class Seer(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.view_requirements |= requirements
            self.one = (
                torch.nn.Parameter(torch.ones(1)) if framework == "torch" else tf.Variable([1.0])
            )

        def get_initial_state(self):
            return [np.full(shape, part, np.float32) for part in initial]

        def forward(self, input_dict, state, seq_lens):
            obs = input_dict["obs"]
            first = obs[:, 0]
            if framework == "torch":
                new = first if shape == () else obs.reshape(-1, *shape)
                seen = torch.cat([part.reshape(len(obs), -1) for part in state], dim=1)
                seen = torch.cat(
                    [seen, seen.new_zeros(len(obs), self.num_outputs - seen.shape[1])], dim=1
                )
            else:
                new = first if shape == () else tf.reshape(obs, [-1, *shape])
                flat = [tf.reshape(part, [-1, int(np.prod(part.shape[1:]))]) for part in state]
                seen = tf.concat(flat, axis=1)
                seen = tf.pad(seen, [[0, 0], [0, self.num_outputs - seen.shape[1]]])
            self.value = first
            return seen * self.one, [new + 1000 * i for i in range(returns)]

        def value_function(self):
            return self.value

    return {"custom_model": Seer}


def observation(row, t, shape):
    value = 100.0 * row + t
    return [value, value if shape == () else value + 0.5]


def seen_by_hand(past, steps, shape, offset, initial):
    """Return what a model sees at one step of one row: `past` holds its states so far, from the
    episode's first.
    """
    size = int(np.prod(shape))
    found = []
    for shift in steps:
        at = len(past) + shift
        found += [value + offset for value in past[at][:size]] if at >= 0 else [initial] * size
    return found


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(("shift", "steps", "axis"), SHIFTS, ids=str)
def test_model_sees_the_states_its_shift_names(framework, shift, steps, axis):
    shape = SHAPES[len(str(shift)) % 3]
    requirement = ViewRequirement("state_out_0", shift=shift, space=Box(-1, 1, shape, np.float32))
    policy = rlcatalog.build(
        OBS, WIDE, model_of(framework, {"state_in_0": requirement}, [BEFORE], shape), framework
    )
    rows, past = 3, [[], [], []]
    stepper = policy.stepper(rows)
    for t in range(11):
        done = np.array([False, t == 4, t in (4, 9)])
        past = [[] if over else before for over, before in zip(done, past, strict=True)]
        obs = np.float32([observation(row, t, shape) for row in range(rows)])
        before = stepper.state
        step = stepper.step(obs, done=done)
        expected = [seen_by_hand(states, steps, shape, 0, BEFORE) for states in past]
        found = step.dist_inputs[:, : len(expected[0])]
        np.testing.assert_array_equal(found, expected)
        # In a row: no more is kept than the model is given.
        last = steps == list(range(-len(steps), 0))
        assert [part.shape[1] for part in step.state.past] == ([] if last else [-min(steps)])
        # What is stored beside a step, training begins with; a state may be cut into its rows.
        before = policy.restart(before, done).rows([2, 0, 1])
        assert before.memory[0].shape == (rows, *([len(steps)] if axis else []), *shape)
        batch = {"obs": obs[[2, 0, 1]], "raw_action": step.raw_action[[2, 0, 1]], "state": before}
        if t in (3, 10):
            inputs = policy.evaluate({**batch, "seq_lens": np.ones(rows, np.int32)}).dist.inputs
            inputs = inputs.detach().numpy() if framework == "torch" else inputs.numpy()
            np.testing.assert_array_equal(inputs, step.dist_inputs[[2, 0, 1]])
            again = policy.act(obs[[2, 0, 1]], before, explore=False)
            np.testing.assert_array_equal(again.dist_inputs, step.dist_inputs[[2, 0, 1]])
        for row in range(rows):
            past[row].append(observation(row, t, shape))


@frameworks
def test_several_states_have_each_their_own_view(framework):
    space = Box(-1, 1, (2,), np.float32)
    views = {
        "state_in_2": ViewRequirement("state_out_2", shift=[-4, -1], space=space),
        "state_in_1": ViewRequirement("state_out_1", shift=-3, space=space),
    }
    policy = rlcatalog.build(
        OBS, WIDE, model_of(framework, views, [1.0, 2.0], returns=3), framework
    )
    stepper, past = policy.stepper(1), []
    for t in range(7):
        step = stepper.step(np.float32([observation(0, t, (2,))]))
        expected = [
            *seen_by_hand(past, [-1], (2,), 0, 1.0),
            *seen_by_hand(past, [-3], (2,), 1000, 2.0),
            # Without an initial state of its own: zeros.
            *seen_by_hand(past, [-4, -1], (2,), 2000, 0.0),
        ]
        np.testing.assert_array_equal(step.dist_inputs[0, : len(expected)], expected)
        past.append(observation(0, t, (2,)))


def refused(error, match, requirements, initial=()):
    with pytest.raises(error, match=match):
        rlcatalog.build(OBS, WIDE, model_of("torch", requirements, initial), "torch")


@pytest.mark.parametrize("shift", [0, 1, "-2:0", "-1:1", [-1, 0], [3]])
def test_view_of_a_future_state_is_rejected_by_name(shift):
    view = ViewRequirement("state_out_0", shift=shift, space=OBS)
    match = r"Seer requests the view 'state_in_0': state_out_0 at \[.*must be -1 or less"
    refused(NotServedError, match, {"state_in_0": view})


@pytest.mark.parametrize("column", ["state_out_1", "state_in_0", "obs", "rewards"])
def test_state_view_into_another_column_is_rejected_by_name(column):
    view = ViewRequirement(column, shift=-1, space=OBS)
    refused(
        NotServedError,
        f"'state_in_0' of '{column}'; it can only read 'state_out_0'",
        {"state_in_0": view},
        [0.0],
    )


def test_missing_state_before_one_with_a_view_is_rejected():
    view = ViewRequirement("state_out_1", shift=-2, space=OBS)
    refused(
        ModelContractError, "neither a view 'state_in_0' nor an initial state", {"state_in_1": view}
    )


def test_memory_rejects_a_trunk_with_states():
    class Trunk(TorchModelV2, torch.nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            torch.nn.Module.__init__(self)
            self.num_outputs = 2
            self.view_requirements["state_in_0"] = ViewRequirement(
                "state_out_0", shift="-2:-1", space=OBS
            )

    with pytest.raises(NotServedError, match="Trunk is itself recurrent"):
        rlcatalog.build(OBS, Discrete(2), {"custom_model": Trunk, "use_lstm": True}, "torch")


@pytest.mark.parametrize("shift", [[], [-1.5], ["-1"], 1.0, "-1", "-1:-3", "-3:-1:0", "a:b", None])
def test_empty_shift_is_rejected(shift):
    with pytest.raises(
        ConfigError, match="shift: expected an integer, a list of integers or 'from:to"
    ):
        ViewRequirement("obs", shift=shift)
