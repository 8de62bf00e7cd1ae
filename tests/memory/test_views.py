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
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import MissingPluginError, ModelContractError, NotServedError
from rlcatalog.plugins import install_hint
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

OBS = Box(-1, 1, (3,), np.float32)
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
VIEWS = {
    "last_obs": ViewRequirement("obs", space=OBS, shift="-2:0"),
    "far_obs": ViewRequirement("obs", space=OBS, shift=[-4, -1]),
    "prev_actions": ViewRequirement("actions", shift=-1),
    "prev_n_actions": ViewRequirement("actions", shift="-3:-1"),
    "coded": ViewRequirement("action_inputs", shift="-2:-1"),
    "prev_reward": ViewRequirement(),  # RLlib's name alone says column and shift
    "prev_n_rewards": ViewRequirement("rewards", shift="-3:-2"),
    "t": ViewRequirement("t"),
}


def flat_parts(values):
    """Return the arrays or tensors of a structure, depth first."""
    if isinstance(values, dict):
        return [part for key in values for part in flat_parts(values[key])]
    return (
        [part for value in values for part in flat_parts(value)]
        if isinstance(values, tuple)
        else [values]
    )


class TorchSeer(TorchModelV2):
    """Its output is a fixed function of all that it sees, so that what it sees can be read off the
    output.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= VIEWS
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        parts = [
            p.float().flatten(1) if p.ndim > 1 else p.float()[:, None]
            for n in VIEWS
            for p in flat_parts(input_dict[n])
        ]
        seen = torch.cat(parts, dim=1)
        weights = torch.sin(torch.arange(seen.shape[1] * self.num_outputs).float()).reshape(
            -1, self.num_outputs
        )
        self._value = seen.sum(dim=1)
        return self.scale * (seen @ weights), state

    def value_function(self):
        return self._value


class TFSeer(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= VIEWS
        self.scale = tf.Variable([1.0])

    def forward(self, input_dict, state, seq_lens):
        parts = [tf.cast(p, tf.float32) for n in VIEWS for p in flat_parts(input_dict[n])]
        seen = tf.concat(
            [tf.reshape(p, [tf.shape(p)[0], int(np.prod(p.shape[1:]))]) for p in parts], axis=1
        )
        weights = tf.reshape(
            tf.sin(tf.range(float(seen.shape[1] * self.num_outputs))), [-1, self.num_outputs]
        )
        self._value = tf.reduce_sum(seen, axis=1)
        return self.scale * (seen @ weights), state

    def value_function(self):
        return self._value


SEERS = {"torch": TorchSeer, "tf": TFSeer}


def coded(space, raw):
    """Return one raw action as a model's input, written out kind by kind."""
    if isinstance(space, Discrete):
        return list(np.eye(space.n)[int(raw[0])])
    if isinstance(space, MultiDiscrete):
        return [x for n, value in zip(space.nvec, raw, strict=True) for x in np.eye(n)[int(value)]]
    if isinstance(space, Tuple | Dict):
        found, at = [], 0
        for child in space.spaces.values() if isinstance(space, Dict) else space.spaces:
            width = (
                1
                if isinstance(child, Discrete)
                else len(child.nvec)
                if isinstance(child, MultiDiscrete)
                else None
            )
            width = width or (4 if isinstance(child, Dict) else int(np.prod(child.shape)))
            found += coded(child, raw[at : at + width])
            at += width
        return found
    if isinstance(space, Box) and space.dtype.kind == "i":
        return list(raw / (space.high - space.low))
    return list(raw)


def by_hand(space, episode, t):
    """Return everything the model must have seen at step t of one row's episode: a list of (obs,
    raw, reward).
    """

    def obs(at):
        return episode[at][0] if at >= 0 else np.zeros(3)

    def raw(at):
        return episode[at][1] if at >= 0 else np.zeros_like(episode[0][1])

    def reward(at):
        return episode[at][2] if at >= 0 else 0.0

    def code(at):
        return coded(space, episode[at][1]) if at >= 0 else [0.0] * len(coded(space, episode[0][1]))

    seen = [
        obs(t - 2),
        obs(t - 1),
        obs(t),
        obs(t - 4),
        obs(t - 1),
        raw(t - 1),
        raw(t - 3),
        raw(t - 2),
        raw(t - 1),
    ]
    seen += [code(t - 2), code(t - 1), [reward(t - 1)], [reward(t - 3), reward(t - 2)], [t]]
    return np.concatenate([np.asarray(part, np.float64).reshape(-1) for part in seen])


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_model_sees_past_observations_actions_and_rewards(framework, kind):
    space, rng = ACTIONS[kind], np.random.default_rng(0)
    policy = rlcatalog.build(OBS, space, {"custom_model": SEERS[framework]}, framework)
    rows, stepper, reward, done = 3, policy.stepper(3), np.zeros(3), None
    episodes = [[] for _ in range(rows)]
    stored = []
    for _ in range(12):
        obs = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
        step = stepper.step(obs, done=done, prev_reward=reward)
        reward = rng.normal(size=rows).astype(np.float32)
        for row in range(rows):
            if done is not None and done[row]:
                episodes[row] = []
            episodes[row].append((obs[row], step.raw_action[row].astype(np.float64), reward[row]))
            seen = by_hand(space, episodes[row], len(episodes[row]) - 1)
            weights = np.sin(np.arange(len(seen) * step.dist_inputs.shape[1])).reshape(
                len(seen), -1
            )
            np.testing.assert_allclose(step.dist_inputs[row], seen @ weights, rtol=1e-4, atol=1e-4)
        stored.append((obs, step))
        done = rng.random(rows) < 0.25
    # Training sees the same once more.
    for obs, step in stored:
        batch = {
            "obs": policy.preprocess(obs),
            "raw_action": step.raw_action,
            "views": step.state.seen,
        }
        found = policy.evaluate(batch)
        np.testing.assert_allclose(
            np.asarray(found.logp.detach() if framework == "torch" else found.logp),
            step.logp,
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_nested_actions_keep_their_structure_on_request(framework):
    space = ACTIONS["nested"]
    config = {"custom_model": SEERS[framework], "_disable_action_flattening": True}
    policy = rlcatalog.build(OBS, space, config, framework)
    first = policy.act(np.zeros((2, 3), np.float32))
    second = policy.act(np.zeros((2, 3), np.float32), first.state, prev_reward=np.zeros(2))
    button, parts = second.state.seen["prev_actions"]
    assert (button.dtype, button.shape) == (np.int64, (2,))
    np.testing.assert_array_equal(button, first.raw_action[:, 0])
    np.testing.assert_allclose(parts["arm"], first.raw_action[:, 1:3])
    np.testing.assert_array_equal(parts["grip"], first.raw_action[:, 3:])
    assert second.state.seen["prev_n_actions"][1]["grip"].shape == (2, 3, 2)
    batch = {
        "obs": np.zeros((2, 3), np.float32),
        "raw_action": second.raw_action,
        "views": second.state.seen,
    }
    found = policy.evaluate(batch).logp
    np.testing.assert_allclose(
        np.asarray(found.detach() if framework == "torch" else found), second.logp, rtol=1e-4
    )


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_as_inputs_have_the_width_they_say(kind):
    codec = action_codec(rlcatalog.SpaceInfo.read(ACTIONS[kind], "action"))
    raw = np.zeros((5, codec.width), np.int64 if codec.whole else np.float32)
    assert codec.inputs(raw).shape == (5, codec.input_width) == (5, flatdim(ACTIONS[kind]))
    assert codec.inputs(raw).dtype == np.float32


def test_rows_that_go_on_need_their_reward():
    policy = rlcatalog.build(OBS, Discrete(2), {"custom_model": TorchSeer})
    step = policy.act(np.zeros((2, 3), np.float32))
    with pytest.raises(
        ModelContractError, match="TorchSeer requests past rewards: pass the last step's rewards"
    ):
        policy.act(np.zeros((2, 3), np.float32), step.state)
    with pytest.raises(
        ModelContractError, match=r"state: expected the state of 3 rows, .* found 2 rows"
    ):
        policy.act(np.zeros((3, 3), np.float32), step.state, prev_reward=np.zeros(3))
    with pytest.raises(
        ModelContractError, match=r"state: expected the state of 2 rows, .* found list"
    ):
        policy.act(np.zeros((2, 3), np.float32), [np.zeros(2)])


def test_training_without_the_views_is_refused():
    policy = rlcatalog.build(OBS, Discrete(2), {"custom_model": TorchSeer})
    batch = {"obs": np.zeros((2, 3), np.float32), "raw_action": np.zeros((2, 1), np.int64)}
    with pytest.raises(
        ModelContractError, match=r"batch\['views'\] lacks \['last_obs', .*step\.state\.seen"
    ):
        policy.evaluate(batch)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            ViewRequirement("colour"),
            "the view 'x' into the column 'colour'; expected one of obs, actions",
        ),
        (ViewRequirement("obs", shift=1), r"obs at \[1\], which is not known when it acts"),
        (ViewRequirement("actions", shift=0), r"actions at \[0\], which is not known when it acts"),
        (
            ViewRequirement("obs", shift="-1:1", used_for_compute_actions=False),
            "a view looks either back or ahead",
        ),
    ],
)
def test_unsupported_view_is_rejected_at_build(view, message):
    class Asking(TorchSeer):
        def __init__(self, *args):
            super().__init__(*args)
            self.view_requirements["x"] = view

    with pytest.raises(NotServedError, match=message):
        rlcatalog.build(OBS, Discrete(2), {"custom_model": Asking})


def test_views_that_are_not_for_acting_or_not_for_training():
    class Partial(TorchModelV2):
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
            self.names = sorted(input_dict)
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return torch.zeros(1)

    policy = rlcatalog.build(OBS, Discrete(2), {"custom_model": Partial})
    obs = np.ones((1, 3), np.float32)
    step = policy.act(obs)
    assert "only_acting" in policy.model.names
    assert "only_training" not in policy.model.names
    policy.evaluate({"obs": obs, "raw_action": step.raw_action, "views": step.state.seen})
    assert "only_training" in policy.model.names
    assert "only_acting" not in policy.model.names


@pytest.mark.parametrize(
    "view",
    [
        *VIEWS.values(),
        ViewRequirement("x", space=ACTIONS["nested"], shift=[-3, 2], batch_repeat_value=7),
    ],
)
def test_view_survives_json(view):
    again = ViewRequirement.from_dict(json.loads(json.dumps(view.to_dict())))
    assert again.to_dict() == view.to_dict()
    assert again.shift_arr.tolist() == view.shift_arr.tolist()
    assert again.space == view.space


def test_view_to_dict_without_policy_package_names_it(monkeypatch):
    view = ViewRequirement("obs", space=OBS)
    written = view.to_dict()
    monkeypatch.setitem(sys.modules, "rlcatalog_policy", None)
    hint = re.escape(install_hint("rlcatalog-policy"))
    with pytest.raises(MissingPluginError, match=f"A space as plain data .*{hint}"):
        view.to_dict()
    with pytest.raises(MissingPluginError, match=f"A space from plain data .*{hint}"):
        ViewRequirement.from_dict(written)


def test_shift_accepts_ranges_from_and_to_zero():
    """RLlib leaves the shifts of "0:3" unset."""
    assert ViewRequirement(shift="0:3").shift_arr.tolist() == [0, 1, 2, 3]
    assert ViewRequirement(shift="-4:0:2").shift_arr.tolist() == [-4, -2, 0]
