"""Views of a model's own states, in every form a shift is written in, against a list of all past
states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

TWO_FEATURES = Box(-1e4, 1e4, (2,), np.float32)
WIDE = Box(-1, 1, (12,), np.float32)  # an action for each of up to 12 numbers that a model sees
BEFORE = -7.0  # the state before an episode began
#: A shift, and the steps that it names.
SHIFTS = [
    (-1, [-1]),
    (-2, [-2]),
    (-5, [-5]),
    ([-1], [-1]),
    ([-3, -2, -1], [-3, -2, -1]),
    ([-1, -4], [-1, -4]),
    ((-5, -2, -2), [-5, -2, -2]),
    ("-3:-1", [-3, -2, -1]),
    ("-1:-1", [-1]),
    ("-3:-2", [-3, -2]),
    ("-6:-2:2", [-6, -4, -2]),
    ("-6:-1:2", [-6, -4, -2]),
    ("-5:-1:3", [-5, -2]),
]
each_shift = pytest.mark.parametrize("shift", [shift for shift, _ in SHIFTS], ids=str)
each_shift_with_steps = pytest.mark.parametrize(("shift", "steps"), SHIFTS, ids=str)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class Options:
    """What a model of states views and returns; subclasses set it.

    The state of a step is its observation; a second state adds 1000, a third one 2000.
    """

    views: Mapping[str, ViewRequirement] = MappingProxyType({})
    initial: Sequence[float] = ()
    shape = (2,)
    states = 1

    def get_initial_state(self):
        return [np.full(self.shape, value, np.float32) for value in self.initial]


class TorchSeesStates(Options, TorchModelV2):
    """Returns the states that it receives as its outputs, filled with zeros."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= self.views
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]
        self.first = obs[:, 0]
        new = self.first if self.shape == () else obs.reshape(-1, *self.shape)
        states = torch.cat([part.reshape(len(obs), -1) for part in state], dim=1)
        filled = torch.nn.functional.pad(states, (0, self.num_outputs - states.shape[1]))
        return filled * self.scale, [new + 1000 * i for i in range(self.states)]

    def value_function(self):
        return self.first


class TFSeesStates(Options, TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= self.views
        self.scale = tf.Variable([1.0])

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]
        self.first = obs[:, 0]
        new = self.first if self.shape == () else tf.reshape(obs, [-1, *self.shape])
        flat = [tf.reshape(part, [-1, int(np.prod(part.shape[1:]))]) for part in state]
        states = tf.concat(flat, axis=1)
        filled = tf.pad(states, [[0, 0], [0, self.num_outputs - states.shape[1]]])
        return filled * self.scale, [new + 1000 * i for i in range(self.states)]

    def value_function(self):
        return self.first


def build_seeing_states(framework, **options):
    """Build a policy whose model views its states."""
    base = {"torch": TorchSeesStates, "tf": TFSeesStates}[framework]
    model = type("SeesStates", (base,), options)
    return rlcatalog.build(TWO_FEATURES, WIDE, {"custom_model": model}, framework)


def observation(row, t, shape):
    """Return an observation whose numbers name the row and the step."""
    first = 100.0 * row + t
    second = first if shape == () else first + 0.5
    return [first, second]


def select_states(past, steps, shape):
    """Return the numbers of the states that a view names, of a list of an episode's states."""
    size = int(np.prod(shape))
    numbers = []
    for shift in steps:
        t = len(past) + shift
        if t >= 0:
            numbers += past[t][:size]
        else:  # before the episode
            numbers += [BEFORE] * size
    return numbers


# --- which states a model sees --------------------------------------------------------------------


@pytest.fixture
def shape(shift):
    """The shape of a state: a vector, a matrix or a number."""
    return [(2,), (2, 1), ()][len(str(shift)) % 3]


@pytest.fixture
def policy(framework, shift, shape):
    """A policy whose model views its own state with a shift."""
    space = Box(-1, 1, shape, np.float32)
    view = ViewRequirement("state_out_0", shift=shift, space=space)
    return build_seeing_states(framework, views={"state_in_0": view}, initial=[BEFORE], shape=shape)


class Episodes:
    """Three rows of episodes that end at different steps, and their past states."""

    def __init__(self, policy, shape):
        self.stepper = policy.stepper(3)
        self.shape = shape
        self.past = [[], [], []]

    def play(self, steps):
        """Yield the observations, the state before, and the policy's step; then go on."""
        for t in range(steps):
            done = np.array([False, t == 4, t in (4, 9)])
            for row in np.flatnonzero(done):
                self.past[row] = []
            obs = np.float32([observation(row, t, self.shape) for row in range(3)])
            before = self.stepper.policy.restart(self.stepper.state, done)
            yield obs, before, self.stepper.step(obs, done=done)
            for row in range(3):
                self.past[row].append(observation(row, t, self.shape))


@pytest.mark.grid
@frameworks
@each_shift_with_steps
def test_model_sees_the_states_its_shift_names(policy, shape, steps):
    episodes = Episodes(policy, shape)
    for _, _, step in episodes.play(steps=11):
        expected = [select_states(past, steps, shape) for past in episodes.past]
        seen = step.dist_inputs[:, : len(expected[0])]
        np.testing.assert_array_equal(seen, expected)


@pytest.mark.grid
@frameworks
@each_shift_with_steps
def test_policy_keeps_as_many_states_as_its_view_needs(policy, shape, steps):
    episodes = Episodes(policy, shape)
    is_window_to_now = steps == list(range(-len(steps), 0))
    # Such a window is the model's input, and no other states are needed for the next one.
    expected = [] if is_window_to_now else [-min(steps)]
    for _, _, step in episodes.play(steps=11):
        assert [part.shape[1] for part in step.state.past] == expected


@pytest.mark.grid
@frameworks
@each_shift_with_steps
def test_stored_state_has_the_rows_that_are_selected(policy, shape, shift, steps):
    # A single number names one state, anything else a window with an axis for its steps.
    window = () if isinstance(shift, int) else (len(steps),)
    episodes = Episodes(policy, shape)
    for _, before, _ in episodes.play(steps=11):
        assert before.rows([2, 0, 1]).memory[0].shape == (3, *window, *shape)


@pytest.mark.grid
@frameworks
@each_shift
def test_stored_state_gives_the_same_outputs_again(policy, shape):
    *_, (obs, state_before, step) = Episodes(policy, shape).play(steps=11)
    rows = [2, 0, 1]

    step_again = policy.act(obs[rows], state_before.rows(rows), explore=False)

    np.testing.assert_array_equal(step_again.dist_inputs, step.dist_inputs[rows])


@pytest.mark.grid
@frameworks
@each_shift
def test_training_on_a_stored_state_gives_the_same_outputs(policy, framework, shape):
    *_, (obs, state_before, step) = Episodes(policy, shape).play(steps=11)  # the last step
    rows = [2, 0, 1]  # the three episodes in another order
    batch = {
        "obs": obs[rows],
        "raw_action": step.raw_action[rows],
        "state": state_before.rows(rows),
        "seq_lens": np.ones(3, np.int32),  # sequences of one step
    }

    dist_inputs = policy.evaluate(batch).dist.inputs

    if framework == "torch":
        dist_inputs = dist_inputs.detach()
    np.testing.assert_array_equal(dist_inputs.numpy(), step.dist_inputs[rows])


@frameworks
def test_states_are_seen_through_different_views(framework):
    views = {
        "state_in_2": ViewRequirement("state_out_2", shift=[-4, -1], space=TWO_FEATURES),
        "state_in_1": ViewRequirement("state_out_1", shift=-3, space=TWO_FEATURES),
    }
    # The first state has no view, so that the model sees the last one.
    policy = build_seeing_states(framework, views=views, initial=[1.0, 2.0], states=3)
    stepper = policy.stepper(1)

    # The model's outputs are what it sees, one state after the other.
    step = stepper.step(np.float32([[0, 0.5]]))
    seen = step.dist_inputs[0, :8]
    assert seen.tolist() == [1, 1, 2, 2, 0, 0, 0, 0]  # the initial states, or zeros

    for t in (1, 2, 3, 4):
        step = stepper.step(np.float32([[t, t + 0.5]]))
    seen = step.dist_inputs[0, :8]
    # Step 4 sees the first state of step 3, the second of step 1, and the third of steps 0 and 3.
    # The states of a step are its observation; the second one adds 1000, the third one 2000.
    assert seen.tolist() == [3, 3.5, 1001, 1001.5, 2000, 2000.5, 2003, 2003.5]


# --- errors ---------------------------------------------------------------------------------------


def test_trunk_with_states_below_a_memory_is_an_error():
    class Trunk(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 2
            last_two = ViewRequirement("state_out_0", shift="-2:-1", space=TWO_FEATURES)
            self.view_requirements["state_in_0"] = last_two

    with pytest.raises(NotServedError, match="Trunk is itself recurrent"):
        rlcatalog.build(
            TWO_FEATURES, Discrete(2), {"custom_model": Trunk, "use_lstm": True}, "torch"
        )


@pytest.mark.parametrize("shift", [[], [-1.5], ["-1"], 1.0, "-1", "-1:-3", "-3:-1:0", "a:b", None])
def test_invalid_shift_is_an_error(shift):
    with pytest.raises(ConfigError, match="shift: expected an integer, a list"):
        ViewRequirement("obs", shift=shift)
