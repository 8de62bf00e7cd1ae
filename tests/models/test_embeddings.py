"""Policies whose nets look ids up in tables: training, saving, freezing, copies and export.

Crosses: policy, ppo, export.
"""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from builders import sample_observations
from crafted_saves import manifest_of, sign
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog.models import weights_of

PAIR = spaces.Box(-1, 1, (2,), np.float32)
SPACE = spaces.Dict(
    {
        "item": spaces.Discrete(1000, start=5),
        "price": PAIR,
        "tags": spaces.MultiDiscrete([3, 4]),
        "name": spaces.Text(5, min_length=0, charset="abc"),
    }
)
CONFIG = {"embeddings": {"item": 8, "tags": 2, "name": 4}, "fcnet_hiddens": [16]}
TWO_ACTIONS = spaces.Discrete(2)

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def build(framework="torch", **config):
    return rlcatalog.build(SPACE, TWO_ACTIONS, {**CONFIG, **config}, framework)


def test_weights_mean_the_same_in_both_frameworks():
    policy = build("torch")
    other = build("tf")
    obs = sample_observations(SPACE, 16)

    assert list(other.model.get_weights()) == list(policy.model.get_weights())
    other.model.set_weights(policy.model.get_weights())

    expected = policy.act(obs, explore=False)
    step = other.act(obs, explore=False)
    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, atol=1e-5)
    np.testing.assert_allclose(step.value, expected.value, atol=1e-5)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("critic", [None, {"fcnet_hiddens": [8]}], ids=["no-critic", "critic"])
def test_loaded_policy_acts_the_same(critic, framework, tmp_path):
    config = {}
    if critic is not None:
        config = {"critic": critic, "obs_groups": {"policy": ["price", "tags"]}}
    policy = build(framework, **config)
    obs = sample_observations(SPACE, 8)

    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    np.testing.assert_array_equal(loaded.act(obs).dist_inputs, policy.act(obs).dist_inputs)
    np.testing.assert_array_equal(loaded.act(obs).value, policy.act(obs).value)


def unpickle_pickle(policy):
    return pickle.loads(pickle.dumps(policy))


@pytest.mark.parametrize("make_copy", [copy.deepcopy, unpickle_pickle])
def test_copied_policy_acts_the_same(make_copy):
    policy = build()
    obs = sample_observations(SPACE, 8)

    expected = policy.act(obs).dist_inputs

    np.testing.assert_array_equal(make_copy(policy).act(obs).dist_inputs, expected)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("space", [SPACE, spaces.Discrete(9)], ids=["dict", "discrete"])
def test_frozen_policy_acts_the_same(space, framework):
    config = CONFIG if space is SPACE else {"embeddings": 8}
    policy = rlcatalog.build(space, TWO_ACTIONS, config, framework)
    obs = sample_observations(space, 1)
    expected = policy.act(obs, explore=False)

    policy.freeze()
    step = policy.act(obs, explore=False)

    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, atol=1e-6)
    assert step.action == expected.action


def test_module_compiles_to_one_graph():
    policy = build()
    module = policy.as_module()
    obs = torch.as_tensor(policy.preprocess(sample_observations(SPACE, 4)))

    dist, values = torch.compile(module, fullgraph=True, backend="eager")(obs)

    expected_dist, expected_values = module(obs)
    torch.testing.assert_close(dist.inputs, expected_dist.inputs)
    torch.testing.assert_close(values, expected_values)


def test_loader_refuses_a_table_larger_than_the_file(tmp_path):
    policy = build()
    policy.save(tmp_path)
    manifest = manifest_of(tmp_path)
    manifest["config"]["embeddings"]["item"] = 80_000_000  # 80 billion weights

    sign(tmp_path, manifest)

    with pytest.raises(SavedPolicyError, match="but the config describes a model"):
        rlcatalog.load(tmp_path)


def test_onnx_file_takes_the_ids_as_int64(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    space = spaces.Dict({"item": spaces.Discrete(70_000), "price": PAIR})
    config = {"embeddings": {"item": 8}, "fcnet_hiddens": [16]}
    policy = rlcatalog.build(space, TWO_ACTIONS, config)
    obs = sample_observations(space, 4)

    policy.export(tmp_path / "policy.onnx")

    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    types = {port.name: port.type for port in session.get_inputs()}
    [item_type] = [kind for name, kind in types.items() if "item" in name]
    assert item_type == "tensor(int64)"
    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    expected = policy.act(obs, explore=False).action
    np.testing.assert_array_equal(actor.act(obs, explore=False).action, expected)


def test_part_moves_between_policies_with_the_same_embeddings():
    policy = build()
    other = build()

    rlcatalog.load_part(policy, "trunk", other)

    name = "input_embedding.tables.0.weight"
    weights = weights_of(policy.model)
    np.testing.assert_array_equal(weights[name], weights_of(other.model)[name])


def test_part_with_other_embeddings_is_refused():
    other = build(embeddings={"item": 8, "tags": 3, "name": 4})

    with pytest.raises(ConfigError, match="was built with embeddings="):
        rlcatalog.load_part(build(), "trunk", other)


# --- training -------------------------------------------------------------------------------------


class EvenItems(gym.Env):
    """Shows the number of an item; the right action says whether a fixed list contains it."""

    def __init__(self, num_items=64):
        self.observation_space = spaces.Discrete(num_items, start=1)
        self.action_space = TWO_ACTIONS
        self._is_wanted = np.random.default_rng(0).integers(2, size=num_items)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._item = int(self.np_random.integers(len(self._is_wanted)))
        return self._item + 1, {}

    def step(self, action):
        reward = float(action == self._is_wanted[self._item])
        self._item = int(self.np_random.integers(len(self._is_wanted)))
        self._steps += 1
        return self._item + 1, reward, False, self._steps >= 32, {}


def test_ppo_learns_a_rule_about_ids():
    from rlcatalog_ppo import PPO

    algo = PPO(
        EvenItems,
        {
            "num_envs": 8,
            "rollout_length": 128,
            "minibatch_size": 128,
            "num_epochs": 4,
            "lr": 0.003,
            "gamma": 0.0,
            "seed": 0,
            "model": {"embeddings": 8, "fcnet_hiddens": [32]},
        },
    )

    for _ in range(12):
        algo.train()

    items = np.arange(1, 65)
    actions = algo.policy.act(items, explore=False).action
    algo.stop()
    # A policy that ignores the ids is right about half of them.
    assert (actions == EvenItems()._is_wanted).mean() > 0.95
