"""Parts of the model in PPO, A2C and PG: frozen ones stay, and others have their own rates."""

from __future__ import annotations

import numpy as np
import pytest
from part_weights import Normalized

from rlcatalog.errors import ConfigError
from rlcatalog.internals import ModelParts
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.config import PPOConfig

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

#: TensorFlow takes longer to trace a step than to take the few steps of these tests.
CONFIG = {"num_envs": 2, "rollout_length": 16, "seed": 3, "eager_tracing": False}
PPO_CONFIG = {**CONFIG, "num_epochs": 2, "minibatch_size": 16}
SMALL = {"fcnet_hiddens": [8]}
LSTM = {**SMALL, "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 8}

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def make_normalized(framework):
    """Return what makes a net with batch statistics and dropout."""
    if framework == "torch":
        return Normalized
    layers = pytest.importorskip("tensorflow").keras.layers
    keras = pytest.importorskip("tensorflow").keras

    def make_net():
        return keras.Sequential([layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5)])

    return make_net


def weights_of(algo):
    return {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}


def names_of(algo, *parts):
    """Return the names of the weights in parts of the model."""
    all_parts = ModelParts(algo.policy.model)
    names = set()
    for part in parts:
        names |= set(all_parts.select(part, "test").names.values())
    return names


def train_and_find_changes(algo):
    """Train; return the names of the weights whose bytes changed."""
    before = weights_of(algo)
    algo.train()
    after = weights_of(algo)
    return {name for name in after if after[name].tobytes() != before[name].tobytes()}


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("cls", [PPO, A2C, PG])
def test_frozen_trunk_keeps_all_bytes(framework, cls):
    config = PPO_CONFIG if cls is PPO else CONFIG
    config = {**config, "framework": framework, "model": {"freeze_parts": ["trunk"]}}
    algo = cls("CartPole-v1", config, model=make_normalized(framework))

    changed = train_and_find_changes(algo)

    all_names = set(weights_of(algo))
    unchanged = names_of(algo, "trunk")
    if cls is PG:
        unchanged |= names_of(algo, "value")  # PG learns no values
    assert changed == all_names - unchanged


@both_frameworks
def test_part_frozen_and_unfrozen_between_updates(framework):
    algo = PPO("CartPole-v1", {**PPO_CONFIG, "framework": framework, "model": LSTM})
    all_names = set(weights_of(algo))

    assert train_and_find_changes(algo) == all_names
    algo.policy.freeze_parts("trunk", "memory")
    assert train_and_find_changes(algo) == names_of(algo, "head", "value")
    algo.policy.unfreeze_parts("memory")
    assert train_and_find_changes(algo) == names_of(algo, "memory", "head", "value")
    algo.policy.unfreeze_parts()
    assert train_and_find_changes(algo) == all_names


@both_frameworks
def test_frozen_run_resumes_identically_and_unfreezes(framework, tmp_path):
    config = {**PPO_CONFIG, "framework": framework, "model": SMALL, "eager_tracing": True}
    algo = PPO("CartPole-v1", config)
    algo.train()
    algo.policy.freeze_parts("trunk")
    algo.train()
    algo.save_checkpoint(tmp_path)

    def train_frozen_then_whole(run):
        assert run.policy.frozen_parts == ("trunk",)
        run.train()
        run.policy.unfreeze_parts("trunk")
        run.train()

    train_frozen_then_whole(algo)
    restored = PPO.restore(tmp_path)  # which also restores the random generators
    train_frozen_then_whole(restored)

    # The moments of the frozen weights have waited in the checkpoint.
    expected = weights_of(algo)
    for name, weight in weights_of(restored).items():
        assert weight.tobytes() == expected[name].tobytes(), name


def test_frameworks_agree_on_frozen_and_unfrozen_weights():
    runs = {}
    for framework in ("torch", "tf"):
        algo = PPO("CartPole-v1", {**PPO_CONFIG, "framework": framework, "model": SMALL})
        runs[framework] = algo
    weights = runs["torch"].policy.model.get_weights()
    runs["tf"].policy.model.set_weights(weights)
    batches = []
    for _ in range(3):
        rollout = runs["torch"]._collect_rollout()
        batches.append(runs["torch"]._batch(rollout))

    for algo in runs.values():
        algo._rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
        algo._learner.update(batches[0], lr=1e-2, lr_parts={})
        algo.policy.freeze_parts("trunk")
        algo._learner.update(batches[1], lr=1e-2, lr_parts={})
        algo.policy.unfreeze_parts("trunk")
        algo._learner.update(batches[2], lr=1e-2, lr_parts={})

    expected = weights_of(runs["torch"])
    for name, weight in weights_of(runs["tf"]).items():
        np.testing.assert_allclose(weight, expected[name], atol=2e-5, err_msg=name)


@both_frameworks
def test_part_with_rate_zero_stays_and_others_move(framework):
    config = {**PPO_CONFIG, "framework": framework, "lr_parts": {"trunk": 0.0}, "model": SMALL}
    algo = PPO("CartPole-v1", config)

    assert train_and_find_changes(algo) == names_of(algo, "head", "value")


def test_first_step_moves_each_part_by_its_rate():
    # Adam's first step is about the learning rate, whatever the gradient.
    config = {**CONFIG, "lr": 1e-2, "lr_parts": {"trunk": 1e-4, "value": 1e-3}, "model": SMALL}
    algo = A2C("CartPole-v1", {**config, "grad_clip": None})
    before = weights_of(algo)

    algo.train()

    after = weights_of(algo)
    for part, rate in (("trunk", 1e-4), ("value", 1e-3), ("head", 1e-2)):
        steps = [np.abs(after[name] - before[name]).max() for name in names_of(algo, part)]
        assert max(steps) == pytest.approx(rate, rel=0.05), part


def test_rates_of_parts_follow_schedule_and_annealing():
    rates = {"trunk": 1e-5}
    annealed = PPOConfig(lr=1e-3, lr_parts=rates, total_steps=100)
    scheduled = PPOConfig(lr_parts=rates, lr_schedule=((0, 0.0), (10, 4e-3), (20, 1e-3)))

    assert PPOConfig(lr_parts=rates).lr_parts_at(50) == rates
    assert annealed.lr_parts_at(25) == pytest.approx({"trunk": 0.75e-5})
    assert scheduled.lr_parts_at(10) == pytest.approx(rates)  # at the largest value
    assert scheduled.lr_parts_at(20) == pytest.approx({"trunk": 0.25e-5})
    assert scheduled.lr_parts_at(0) == {"trunk": 0.0}


@both_frameworks
def test_rate_of_unknown_part_is_refused(framework):
    config = {**PPO_CONFIG, "framework": framework, "lr_parts": {"backbone": 1e-5}}

    with pytest.raises(ConfigError, match="lr_parts: this model has no part"):
        PPO("CartPole-v1", config)
