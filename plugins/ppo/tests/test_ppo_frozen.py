"""Collecting with a frozen policy: when, with which weights, and after a restore."""

import numpy as np
import pytest

from rlcatalog.plugins import install_hint

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from drift_env import Drift as DriftEnv

from rlcatalog.errors import ResumeWarning
from rlcatalog.plugins import FrameworkSpec
from rlcatalog_policy import Frozen
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.config import PPOConfig, parse

#: Three environments, and rollouts of 10 steps in each.
SMALL = {
    "num_envs": 3,
    "rollout_length": 10,
    "minibatch_size": 16,
    "num_epochs": 2,
    "seed": 3,
    "framework": "torch",
    "model": {"fcnet_hiddens": [8]},
}
LSTM = {
    "fcnet_hiddens": [8],
    "max_seq_len": 4,
    "use_lstm": True,
    "lstm_cell_size": 5,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
MODELS = {
    "filter": {"fcnet_hiddens": [8], "observation_filter": "MeanStdFilter"},
    "lstm": LSTM,
    "attention": {
        "fcnet_hiddens": [8],
        "max_seq_len": 4,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 4,
        "attention_memory_training": 4,
    },
    "autoregressive": {"fcnet_hiddens": [8], "use_autoregressive": True},
}


# --- when a policy is frozen ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "total_steps", "device", "is_frozen"),
    [
        # By default, there are 8 environments, and rollouts of 128 steps.
        pytest.param({}, 100_000, "cpu", True, id="defaults"),
        pytest.param({"num_envs": 1}, 100_000, "cpu", True, id="1-environment"),
        pytest.param({"num_envs": 256}, 500_000, "cpu", True, id="256-environments"),
        pytest.param({"num_envs": 257}, 500_000, "cpu", False, id="257-environments"),
        pytest.param({"num_envs": 64}, 80_000, "cpu", True, id="1250-steps-each"),
        pytest.param({"num_envs": 64}, 79_999, "cpu", False, id="1249-steps-each"),
        pytest.param({"num_envs": 2}, 20_000, "cpu", True, id="20000-steps"),
        pytest.param({"num_envs": 1}, 19_999, "cpu", False, id="19999-steps"),
        pytest.param({"num_envs": 1}, None, "cpu", False, id="unknown-steps"),
        pytest.param(
            {"num_envs": 1, "rollout_length": 31}, 100_000, "cpu", False, id="short-rollouts"
        ),
        pytest.param({"num_envs": 1}, 100_000, "cuda", False, id="gpu"),
        pytest.param({"num_envs": 1, "frozen": "never"}, 100_000, "cpu", False, id="never"),
        pytest.param({"frozen": "always"}, None, "cuda", True, id="always"),
    ],
)
def test_policy_is_frozen_where_it_saves_time(config, total_steps, device, is_frozen):
    config = parse({"minibatch_size": 16, **config}, PPOConfig)

    assert config.collects_frozen(total_steps, device) is is_frozen


def make_long_run(**config):
    """Return a PPO with a run that is just long enough to freeze its policy."""
    config = {**SMALL, "num_envs": 1, "rollout_length": 64, "total_steps": 20_000, **config}
    return PPO(DriftEnv, config)


def test_policy_is_frozen_at_first_rollout():
    algo = make_long_run()
    assert algo.acting is algo.policy

    algo.train()

    assert isinstance(algo.acting, Frozen)


def test_run_stays_frozen_if_its_steps_change(tmp_path):
    algo = make_long_run()
    algo.train()
    algo.save_checkpoint(tmp_path)

    restored = PPO.restore(tmp_path, DriftEnv, config={"total_steps": 1_000})

    # A new run of 1,000 steps would not be frozen.
    assert isinstance(restored.acting, Frozen)


def test_restored_run_is_no_longer_frozen_if_told_so(tmp_path):
    algo = make_long_run()
    algo.train()
    algo.save_checkpoint(tmp_path)

    restored = PPO.restore(tmp_path, DriftEnv, config={"frozen": "never"})
    restored.train()

    assert restored.acting is restored.policy


def test_run_without_total_steps_counts_those_of_learn():
    algo = make_long_run(total_steps=None, num_envs=2)

    algo.learn(100)

    assert algo.acting is algo.policy  # 100 steps are too few


# --- what a frozen policy does --------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_frozen_policy_acts_with_current_weights(algorithm):
    config = {
        "num_envs": 2,
        "rollout_length": 128,
        "lr": 0.01,
        "framework": "torch",
        "frozen": "always",
        "model": {**LSTM, "observation_filter": "MeanStdFilter"},
    }
    algo = algorithm(DriftEnv, config)
    algo.train()

    batch = training_batch(algo._collector.collect(12), gamma=0.9, lambda_=0.9)

    # The frozen policy has computed `batch["logp"]`, and the policy itself has the new weights.
    logp = algo.policy.evaluate(batch).logp.detach()
    np.testing.assert_allclose(logp, batch["logp"], rtol=1e-4, atol=1e-5)


def test_set_back_changes_weights_of_frozen_policy():
    algo = PPO(DriftEnv, {**SMALL, "lr": 0.1, "frozen": "always"})
    state = algo.state()
    obs = np.ones((3, 3), np.float32)  # a row for each environment
    values = algo.acting.act(obs).value
    algo.train()
    later_values = algo.acting.act(obs).value

    algo.set_back(state)

    np.testing.assert_allclose(algo.acting.act(obs).value, values, atol=1e-6)
    assert np.abs(later_values - values).max() > 1e-2


# --- restoring a frozen run -----------------------------------------------------------------------


def assert_equal_weights(algo, other):
    weights = algo.policy.model.get_weights()
    for name, expected in other.policy.model.get_weights().items():
        np.testing.assert_array_equal(weights[name], expected, err_msg=name)


def train_without_times(algo):
    """Train; return the result without times."""
    result = algo.train()
    del result["time_total_s"]
    del result["steps_per_second"]
    return result


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_restored_frozen_run_continues_identically(model, tmp_path):
    algo = PPO(DriftEnv, {**SMALL, "model": model, "frozen": "always"})
    algo.train()
    algo.save_checkpoint(tmp_path)
    expected = [train_without_times(algo), train_without_times(algo)]

    restored = PPO.restore(tmp_path, DriftEnv)
    actual = [train_without_times(restored), train_without_times(restored)]

    assert actual == expected
    assert_equal_weights(restored, algo)
    for policy in (algo.acting, restored.acting):
        assert isinstance(policy, Frozen)
        assert policy.reason is None  # otherwise it says why it acts as slowly as an unfrozen one


def remove_freezing():
    """Leave PyTorch without the part that freezes policies, until the end of the test."""
    FrameworkSpec.table.specs["torch: freeze"].leave()


def test_frozen_run_warns_if_restored_without_freezing(tmp_path):
    algo = PPO(DriftEnv, {**SMALL, "frozen": "always"})
    algo.train()
    algo.save_checkpoint(tmp_path)
    remove_freezing()

    with pytest.warns(ResumeWarning, match="no installed package supports") as caught:
        PPO.restore(tmp_path, DriftEnv)

    assert "not possible here" in str(caught[0].message)


def test_policy_says_why_it_cannot_be_frozen():
    remove_freezing()
    algo = PPO(DriftEnv, {**SMALL, "frozen": "always"})

    algo.train()

    assert install_hint("rlcatalog-export[torch]") in algo.acting.reason


def test_policy_that_cannot_be_frozen_acts_itself():
    remove_freezing()
    algo = PPO(DriftEnv, {**SMALL, "frozen": "always"})
    algo.train()

    not_frozen = PPO(DriftEnv, {**SMALL, "frozen": "auto"})  # too few steps
    not_frozen.train()

    assert_equal_weights(algo, not_frozen)
