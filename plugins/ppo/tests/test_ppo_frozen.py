"""Collecting with a frozen policy: when, with which weights, and a run that goes on from a
checkpoint.
"""

import numpy as np
import pytest

from rlcatalog.plugins import install_hint

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from drift_env import Drift

from rlcatalog.errors import ResumeWarning
from rlcatalog.provided import declarations
from rlcatalog_policy import Frozen
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.config import PPOConfig, parse

SMALL = {
    "num_envs": 3,
    "rollout_length": 10,
    "minibatch_size": 16,
    "num_epochs": 2,
    "seed": 3,
    "framework": "torch",
}
NET = {"fcnet_hiddens": [8]}
MODELS = {
    "filter": {**NET, "observation_filter": "MeanStdFilter"},
    "lstm": {
        **NET,
        "max_seq_len": 4,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "attention": {
        **NET,
        "max_seq_len": 4,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 4,
        "attention_memory_training": 4,
    },
    "autoregressive": {**NET, "use_autoregressive": True},
}


def timeless(result):
    return {
        name: value
        for name, value in result.items()
        if name not in ("time_total_s", "steps_per_second")
    }


@pytest.mark.parametrize("model", MODELS)
def test_rest_of_a_frozen_run_is_what_it_would_have_been(model, tmp_path):
    config = {**SMALL, "model": MODELS[model], "frozen": "always"}
    whole = PPO(Drift, config)
    for _ in range(2):
        whole.train()
    whole.save_checkpoint(tmp_path / "checkpoint")
    rest = [timeless(whole.train()) for _ in range(3)]
    gone_on = PPO.restore(tmp_path / "checkpoint", Drift)
    assert [timeless(gone_on.train()) for _ in range(3)] == rest
    for name, array in whole.policy.model.get_weights().items():
        np.testing.assert_array_equal(array, gone_on.policy.model.get_weights()[name], err_msg=name)
    for algo in (whole, gone_on):
        assert isinstance(algo.acting, Frozen)
        assert algo.acting.reason is None


@pytest.mark.parametrize("kind", [PPO, A2C, PG])
def test_what_was_collected_has_the_densities_of_the_policy(kind):
    config = {
        "num_envs": 2,
        "rollout_length": 12,
        "seed": 0,
        "framework": "torch",
        "frozen": "always",
        "model": {**MODELS["lstm"], "observation_filter": "MeanStdFilter"},
    }
    if kind is PPO:
        config |= {"minibatch_size": 8, "num_epochs": 2}
    algo = kind(Drift, config)
    for trained in (False, True, True):
        if trained:
            algo.train()
        rollout = algo._collector.collect(12)  # with the weights of now
        batch = rollout.batch(0.9, 0.9)
        found = algo.policy.evaluate(batch)
        np.testing.assert_allclose(found.logp.detach(), batch["logp"], rtol=1e-4, atol=1e-5)
    algo.set_back(algo.state())


@pytest.mark.parametrize(
    ("given", "total", "device", "expected"),
    [
        ({"num_envs": 1}, 100_000, "cpu", True),
        ({"num_envs": 2}, 20_000, "cpu", True),
        ({}, 100_000, "cpu", True),
        ({"num_envs": 16}, 100_000, "cpu", True),
        ({"num_envs": 17}, 100_000, "cpu", False),
        ({"num_envs": 1}, 19_999, "cpu", False),
        ({"num_envs": 1}, None, "cpu", False),
        ({"num_envs": 1, "rollout_length": 32}, 100_000, "cpu", False),
        ({"num_envs": 1}, 100_000, "cuda", False),
        ({"num_envs": 1, "frozen": "never"}, 100_000, "cpu", False),
        ({"frozen": "always"}, None, "cuda", True),
    ],
)
def test_when_it_is_frozen(given, total, device, expected):
    config = parse({"minibatch_size": 16, **given}, PPOConfig)
    assert config.collects_frozen(total, device) is expected


def test_run_stays_what_it_was_decided_to_be(tmp_path):
    config = {
        **SMALL,
        "num_envs": 1,
        "rollout_length": 64,
        "total_steps": 20_000,
        "framework": "torch",
        "model": NET,
    }
    algo = PPO(Drift, config)
    assert algo.acting is algo.policy
    algo.train()
    assert isinstance(algo.acting, Frozen)
    algo.save_checkpoint(tmp_path / "checkpoint")
    on = PPO.restore(tmp_path / "checkpoint", Drift, config={"total_steps": 1_000})
    assert isinstance(on.acting, Frozen)
    off = PPO.restore(tmp_path / "checkpoint", Drift, config={"frozen": "never"})
    off.train()
    assert off.acting is off.policy
    steps = PPO(Drift, {**config, "total_steps": None, "num_envs": 2})
    steps.learn(100)
    assert steps.acting is steps.policy


def test_frozen_run_that_goes_on_where_nothing_freezes_says_so(tmp_path):
    algo = PPO(Drift, {**SMALL, "model": NET, "frozen": "always"})
    algo.train()
    algo.save_checkpoint(tmp_path / "checkpoint")
    declarations["framework"]["torch: freeze"].leave()
    with pytest.warns(ResumeWarning, match="not possible here: no installed package supports this"):
        PPO.restore(tmp_path / "checkpoint", Drift)


def test_what_cannot_be_frozen_collects_as_it_is():
    declarations["framework"]["torch: freeze"].leave()
    algo = PPO(Drift, {**SMALL, "model": NET, "frozen": "always"})
    algo.train()
    assert install_hint("rlcatalog-export[torch]") in algo.acting.reason
    right = PPO(Drift, {**SMALL, "model": NET})
    right.train()
    for name, array in right.policy.model.get_weights().items():
        np.testing.assert_array_equal(array, algo.policy.model.get_weights()[name], err_msg=name)


def test_weights_that_are_set_back_act():
    algo = PPO(Drift, {**SMALL, "lr": 0.1, "model": NET, "frozen": "always"})
    obs = algo._collector._encoded
    state, before = algo.state(), algo.acting.act(obs).value
    algo.train()
    assert np.abs(algo.acting.act(obs).value - before).max() > 1e-2
    algo.set_back(state)
    np.testing.assert_allclose(algo.acting.act(obs).value, before, atol=1e-6)
