"""JAX as a third framework, by the plugin in `jax_plugin`; skipped where JAX is missing.

`make environments` installs JAX in a group of its own and runs this file there.
Crosses: testing, ppo, policy, torch.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog_ppo import A2C, PPO
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcomes

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

PARTS = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-gaussian",
    "rlcatalog-ppo",
)  # fmt: skip
PPO_CONFIG = {
    "framework": "jax",
    "num_envs": 4,
    "rollout_length": 64,
    "minibatch_size": 64,
    "num_epochs": 4,
    "seed": 0,
    "frozen": "never",
    "model": {"fcnet_hiddens": [16]},
}


@pytest.fixture(autouse=True)
def plugin_path(monkeypatch):
    """Let the plugin be imported from its folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("jax_plugin") / "src"))


@pytest.fixture
def catalog(plugin_path):
    requires = ("rlcatalog>=0.1,<0.2",)
    plugin = PluginEntryPoint("acme_jax.plugin", "acme-jax", requires=requires)
    return isolated_catalog(*PARTS, plugin)


@pytest.fixture
def keys(plugin_path):
    """Return the plugin's source of random keys."""
    return importlib.import_module("acme_jax.random").KEYS


@pytest.fixture
def policy(catalog):
    env = gym.make("CartPole-v1")
    return rlcatalog.build(env=env, framework="jax", catalog=catalog)


@pytest.fixture
def obs():
    return np.random.default_rng(0).uniform(-0.1, 0.1, (5, 4)).astype(np.float32)


def test_kit_passes_the_plugin(catalog):
    results = list(outcomes(cases("acme-jax", catalog=catalog)))

    assert [outcome.why for outcome in results if outcome.status == "failed"] == []
    passed = {outcome.name for outcome in results if outcome.status == "passed"}
    assert passed >= {
        "framework-jax-the_backend_evaluates",
        "trunk-fcnet-frameworks_agree",
        "trunk-fcnet-every_weight_is_trained-jax",
        "action_dist-categorical-frameworks_agree",
    }


def test_saved_policy_loads_in_torch(policy, obs, catalog, tmp_path):
    policy.save(tmp_path / "policy")

    loaded = rlcatalog.load(tmp_path / "policy", framework="torch", catalog=catalog)

    expected = policy.act(obs, explore=False)
    actual = loaded.act(obs, explore=False)
    np.testing.assert_allclose(actual.dist_inputs, expected.dist_inputs, atol=1e-6)
    np.testing.assert_allclose(actual.value, expected.value, atol=1e-6)


def test_frozen_policy_acts_the_same(policy, obs):
    frozen = policy.freeze()

    assert frozen.reason is None
    assert repr(frozen).startswith("Frozen: acts faster than the policy\n")
    expected = policy.act(obs, explore=False)
    actual = frozen.act(obs, explore=False)
    np.testing.assert_array_equal(actual.action, expected.action)
    np.testing.assert_allclose(actual.logp, expected.logp, rtol=1e-5)


def test_frozen_policy_draws_with_the_temperature(catalog, keys, obs):
    config = {"categorical_temperature": 0.001, "fcnet_hiddens": [8]}
    env = gym.make("CartPole-v1")
    policy = rlcatalog.build(env=env, config=config, framework="jax", catalog=catalog)
    rows = np.repeat(obs, 200, axis=0)
    frozen = policy.freeze()

    keys.seed(0)
    expected = policy.act(rows)
    keys.seed(0)
    actual = frozen.act(rows)

    np.testing.assert_array_equal(actual.action, expected.action)
    np.testing.assert_allclose(actual.logp, expected.logp, rtol=1e-4, atol=1e-6)


def test_draw_in_a_traced_function_is_refused(keys):
    before = np.asarray(keys.key)

    with pytest.raises(RuntimeError, match="while JAX traces a function"):
        jax.eval_shape(lambda: jax.random.normal(keys.next(), (3,)))

    np.testing.assert_array_equal(keys.key, before)  # no number of the trace is kept


def train(algorithm, iterations):
    """Return the last result."""
    return [algorithm.train() for _ in range(iterations)][-1]


@pytest.mark.parametrize("algorithm_class", [PPO, A2C])
def test_algorithm_learns_cartpole(algorithm_class, catalog):
    config = dict(PPO_CONFIG)
    if algorithm_class is A2C:
        del config["minibatch_size"], config["num_epochs"]
    algorithm = algorithm_class("CartPole-v1", {**config, "lr": 0.005}, catalog=catalog)

    train(algorithm, iterations=25)
    mean_return = np.mean(algorithm.evaluate(20, seed=0))
    algorithm.stop()

    assert mean_return > 60  # a random policy reaches about 20


def test_resumed_run_equals_an_uninterrupted_one(catalog, tmp_path):
    algorithm = PPO("CartPole-v1", PPO_CONFIG, catalog=catalog)
    train(algorithm, iterations=2)
    algorithm.save_checkpoint(tmp_path / "checkpoint")
    expected = train(algorithm, iterations=2)
    algorithm.stop()

    resumed = PPO.restore(tmp_path / "checkpoint", "CartPole-v1", catalog=catalog)
    result = train(resumed, iterations=2)
    resumed.stop()

    assert result["info"] == expected["info"]
    for name, array in algorithm.policy.model.get_weights().items():
        np.testing.assert_array_equal(resumed.policy.model.get_weights()[name], array)
