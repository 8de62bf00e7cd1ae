"""Views of past steps: what a model sees, while acting and in training, against episodes written
down one by one.
"""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim
from nested import leaves

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import MissingPluginError, ModelContractError
from rlcatalog.plugins import install_hint
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
ACTIONS = {
    "discrete": Discrete(4, start=2),
    "multi": MultiDiscrete([3, 2]),
    "bits": MultiBinary(3),
    "box": Box(-1, 1, (2, 2), np.float32),
    "ints": Box(-3, 5, (2,), np.int64),
    "nested": Tuple(
        [Discrete(3), Dict({"arm": Box(-1, 1, (2,), np.float32), "grip": MultiDiscrete([2, 4])})]
    ),
}
#: Two past observations and this one, and so on.
VIEWS = {
    "last_obs": ViewRequirement("obs", space=THREE_FEATURES, shift="-2:0"),
    "far_obs": ViewRequirement("obs", space=THREE_FEATURES, shift=[-4, -1]),
    "prev_actions": ViewRequirement("actions", shift=-1),
    "prev_n_actions": ViewRequirement("actions", shift="-3:-1"),
    "prev_n_inputs": ViewRequirement("action_inputs", shift="-2:-1"),
    "prev_reward": ViewRequirement(),  # RLlib's name alone says column and shift
    "prev_n_rewards": ViewRequirement("rewards", shift="-3:-2"),
    "t": ViewRequirement("t"),
}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class TorchSeesAll(TorchModelV2):
    """Its outputs are a fixed function of all numbers that it sees, so that they can be compared
    with those of the numbers written down.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= VIEWS
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        columns = []
        for name in VIEWS:
            for part in leaves(input_dict[name]):
                columns.append(part.float().reshape(len(part), -1))
        numbers = torch.cat(columns, dim=1)
        count = numbers.shape[1] * self.num_outputs
        weights = torch.sin(torch.arange(count).float()).reshape(-1, self.num_outputs)
        self.total = numbers.sum(dim=1)
        return self.scale * (numbers @ weights), state

    def value_function(self):
        return self.total


class TFSeesAll(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= VIEWS
        self.scale = tf.Variable([1.0])

    def forward(self, input_dict, state, seq_lens):
        columns = []
        for name in VIEWS:
            for part in leaves(input_dict[name]):
                width = int(np.prod(part.shape[1:]))
                columns.append(tf.reshape(tf.cast(part, tf.float32), [tf.shape(part)[0], width]))
        numbers = tf.concat(columns, axis=1)
        count = float(numbers.shape[1] * self.num_outputs)
        weights = tf.reshape(tf.sin(tf.range(count)), [-1, self.num_outputs])
        self.total = tf.reduce_sum(numbers, axis=1)
        return self.scale * (numbers @ weights), state

    def value_function(self):
        return self.total


SEES_ALL = {"torch": TorchSeesAll, "tf": TFSeesAll}


def compute_outputs(numbers, num_outputs):
    """Return the outputs of such a model for the numbers that it sees."""
    weights = np.sin(np.arange(len(numbers) * num_outputs)).reshape(-1, num_outputs)
    return numbers @ weights


def encode_action(space, raw):
    """Return one raw action as a model's input, written out kind by kind."""
    if isinstance(space, Discrete):
        return list(np.eye(space.n)[int(raw[0])])
    if isinstance(space, MultiDiscrete):
        one_hots = [np.eye(n)[int(value)] for n, value in zip(space.nvec, raw, strict=True)]
        return list(np.concatenate(one_hots))
    if isinstance(space, Tuple | Dict):
        children = space.spaces.values() if isinstance(space, Dict) else space.spaces
        numbers = []
        first = 0
        for child in children:
            last = first + raw_width(child)
            numbers += encode_action(child, raw[first:last])
            first = last
        return numbers
    if isinstance(space, Box) and space.dtype.kind == "i":
        return list(raw / (space.high - space.low))
    return list(raw)


def raw_width(space):
    """Return how many numbers a raw action of a space has."""
    if isinstance(space, Discrete):
        return 1
    if isinstance(space, MultiDiscrete):
        return len(space.nvec)
    if isinstance(space, Dict):
        return sum(raw_width(child) for child in space.spaces.values())
    return int(np.prod(space.shape))


class Episode:
    """The observations, raw actions and rewards of one row, step by step."""

    def __init__(self, space):
        self.space = space
        self.steps = []

    def append(self, obs, raw_action, reward):
        self.steps.append((obs, raw_action.astype(np.float64), reward))

    def numbers_of_last_step(self):
        """Return all numbers that a model with `VIEWS` saw before it acted last."""
        t = len(self.steps) - 1
        no_action = np.zeros_like(self.steps[0][1])
        no_input = np.zeros(len(encode_action(self.space, no_action)))

        def obs(at):
            return self.steps[at][0] if at >= 0 else np.zeros(3)

        def raw(at):
            return self.steps[at][1] if at >= 0 else no_action

        def reward(at):
            return self.steps[at][2] if at >= 0 else 0.0

        def action_input(at):
            return encode_action(self.space, raw(at)) if at >= 0 else no_input

        views = [
            *(obs(t - 2), obs(t - 1), obs(t)),  # last_obs
            *(obs(t - 4), obs(t - 1)),  # far_obs
            raw(t - 1),  # prev_actions
            *(raw(t - 3), raw(t - 2), raw(t - 1)),  # prev_n_actions
            *(action_input(t - 2), action_input(t - 1)),  # prev_n_inputs
            reward(t - 1),  # prev_reward
            *(reward(t - 3), reward(t - 2)),  # prev_n_rewards
            t,  # t
        ]
        return np.concatenate([np.asarray(view, np.float64).reshape(-1) for view in views])


# --- what a model sees ----------------------------------------------------------------------------


def play_three_rows(policy, space, *, steps):
    """Play episodes of random lengths in three rows; yield for each step the outputs of the model,
    and the numbers that each row should have seen.
    """
    stepper = policy.stepper(3)
    rng = np.random.default_rng(0)
    episodes = [Episode(space) for _ in range(3)]
    done = np.zeros(3, bool)
    reward = np.zeros(3)
    for _ in range(steps):
        obs = rng.uniform(-1, 1, (3, 3)).astype(np.float32)
        step = stepper.step(obs, done=done, prev_reward=reward)
        reward = rng.normal(size=3).astype(np.float32)
        for row in range(3):
            if done[row]:
                episodes[row] = Episode(space)
            episodes[row].append(obs[row], step.raw_action[row], reward[row])
        yield step.dist_inputs, [episode.numbers_of_last_step() for episode in episodes]
        done = rng.random(3) < 0.25


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("space", ACTIONS.values(), ids=ACTIONS)
def test_model_sees_past_observations_actions_and_rewards(framework, space):
    policy = rlcatalog.build(
        THREE_FEATURES, space, {"custom_model": SEES_ALL[framework]}, framework
    )

    for outputs, numbers_of_rows in play_three_rows(policy, space, steps=12):
        # The outputs are a function of all numbers that the model saw.
        for row, numbers in enumerate(numbers_of_rows):
            expected = compute_outputs(numbers, outputs.shape[1])
            np.testing.assert_allclose(outputs[row], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("space", ACTIONS.values(), ids=ACTIONS)
def test_training_sees_what_acting_saw(framework, space):
    policy = rlcatalog.build(
        THREE_FEATURES, space, {"custom_model": SEES_ALL[framework]}, framework
    )
    stepper = policy.stepper(3)
    rng = np.random.default_rng(0)
    for _ in range(12):
        obs = rng.uniform(-1, 1, (3, 3)).astype(np.float32)
        done = rng.random(3) < 0.25
        step = stepper.step(obs, done=done, prev_reward=rng.normal(size=3))
        views = step.state.views  # what the model saw of past steps

        evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action, "views": views})

        np.testing.assert_allclose(to_array(evaluation.logp), step.logp, rtol=1e-4, atol=1e-4)


@pytest.fixture
def two_steps(framework):
    """A policy whose model gets past actions as they are nested, and its first two steps."""
    config = {"custom_model": SEES_ALL[framework], "_disable_action_flattening": True}
    policy = rlcatalog.build(THREE_FEATURES, ACTIONS["nested"], config, framework)
    obs = np.zeros((2, 3), np.float32)
    first = policy.act(obs)
    second = policy.act(obs, first.state, prev_reward=np.zeros(2))
    return policy, first, second


@frameworks
def test_disabled_action_flattening_keeps_past_actions_nested(two_steps):
    _, first, second = two_steps

    # The action space is Tuple([Discrete(3), Dict({"arm": Box of 2, "grip": MultiDiscrete of 2})])
    button, parts = second.state.views["prev_actions"]

    # The raw action has five columns: one for the Discrete, two for "arm" and two for "grip".
    np.testing.assert_array_equal(button, first.raw_action[:, 0])
    np.testing.assert_allclose(parts["arm"], first.raw_action[:, 1:3])
    np.testing.assert_array_equal(parts["grip"], first.raw_action[:, 3:])
    assert button.dtype == np.int64


@frameworks
def test_training_accepts_nested_past_actions(two_steps):
    policy, _, second = two_steps
    obs = np.zeros((2, 3), np.float32)
    batch = {"obs": obs, "raw_action": second.raw_action, "views": second.state.views}

    evaluation = policy.evaluate(batch)

    np.testing.assert_allclose(to_array(evaluation.logp), second.logp, rtol=1e-4)


@pytest.mark.parametrize("kind", ACTIONS)
def test_inputs_of_past_actions_have_the_flat_width(kind):
    space = ACTIONS[kind]
    codec = action_codec(rlcatalog.SpaceInfo.read(space, "action"))
    raw = np.zeros((5, codec.width), np.int64 if codec.whole else np.float32)

    inputs = codec.inputs(raw)

    assert inputs.shape == (5, flatdim(space))
    assert codec.input_width == flatdim(space)
    assert inputs.dtype == np.float32


class SeesTwoViews(TorchModelV2):
    """Sees one view while it acts, and another one in training; keeps the names of its inputs."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(3, self.num_outputs)
        self.view_requirements["only_acting"] = ViewRequirement(
            "obs", shift=-1, used_for_training=False
        )
        self.view_requirements["only_training"] = ViewRequirement(
            "obs", shift=-2, used_for_compute_actions=False
        )

    def forward(self, input_dict, state, seq_lens):
        self.input_names = set(input_dict)
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return torch.zeros(1)


def test_views_for_acting_or_training_alone_are_seen_only_there():
    policy = rlcatalog.build(THREE_FEATURES, Discrete(2), {"custom_model": SeesTwoViews})
    obs = np.ones((1, 3), np.float32)

    step = policy.act(obs)
    inputs_of_act = policy.model.input_names
    policy.evaluate({"obs": obs, "raw_action": step.raw_action, "views": step.state.views})
    inputs_of_evaluate = policy.model.input_names

    assert "only_acting" in inputs_of_act
    assert "only_training" not in inputs_of_act
    assert "only_acting" not in inputs_of_evaluate
    assert "only_training" in inputs_of_evaluate


# --- errors ---------------------------------------------------------------------------------------


@pytest.fixture
def policy():
    return rlcatalog.build(THREE_FEATURES, Discrete(2), {"custom_model": TorchSeesAll})


def test_act_without_past_rewards_is_an_error(policy):
    obs = np.zeros((2, 3), np.float32)
    step = policy.act(obs)

    message = "TorchSeesAll requests past rewards: pass the last step's"
    with pytest.raises(ModelContractError, match=message):
        policy.act(obs, step.state)


def test_training_without_the_views_is_an_error(policy):
    batch = {"obs": np.zeros((2, 3), np.float32), "raw_action": np.zeros((2, 1), np.int64)}
    message = r"batch\['views'\] lacks \['last_obs', .*step\.state\.views"
    with pytest.raises(ModelContractError, match=message):
        policy.evaluate(batch)


# --- the view as plain data -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        *VIEWS.values(),
        ViewRequirement("x", space=ACTIONS["nested"], shift=[-3, 2], batch_repeat_value=7),
    ],
    ids=[*VIEWS, "all fields"],
)
def test_view_survives_json(view):
    written = json.dumps(view.to_dict())

    restored = ViewRequirement.from_dict(json.loads(written))

    assert restored.to_dict() == view.to_dict()
    assert restored.shift_arr.tolist() == view.shift_arr.tolist()
    assert restored.space == view.space


@pytest.fixture
def without_policy_package(monkeypatch):
    """Let the import of `rlcatalog_policy` fail, which turns spaces into plain data."""
    monkeypatch.setitem(sys.modules, "rlcatalog_policy", None)


def test_to_dict_without_policy_package_names_it(without_policy_package):
    view = ViewRequirement("obs", space=THREE_FEATURES)
    hint = re.escape(install_hint("rlcatalog-policy"))
    with pytest.raises(MissingPluginError, match=f"A space as plain data .*{hint}"):
        view.to_dict()


def test_from_dict_without_policy_package_names_it(request):
    written = ViewRequirement("obs", space=THREE_FEATURES).to_dict()
    request.getfixturevalue("without_policy_package")  # from here on
    hint = re.escape(install_hint("rlcatalog-policy"))
    with pytest.raises(MissingPluginError, match=f"A space from plain data .*{hint}"):
        ViewRequirement.from_dict(written)


def test_shift_accepts_a_range_from_zero():
    # RLlib leaves the shifts of "0:3" unset.
    assert ViewRequirement(shift="0:3").shift_arr.tolist() == [0, 1, 2, 3]


def test_shift_accepts_a_range_with_a_step():
    assert ViewRequirement(shift="-4:0:2").shift_arr.tolist() == [-4, -2, 0]
