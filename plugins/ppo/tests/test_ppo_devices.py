"""Devices: their names, and that the batch of an update travels to the device once."""

import numpy as np
import pytest
import torch
from drift_env import Drift as DriftEnv

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.minibatches import minibatches
from rlcatalog_ppo.update import UpdateHyperparameters

#: Three environments, and rollouts of 12 steps in each.
SMALL = {"num_envs": 3, "rollout_length": 12, "minibatch_size": 16, "num_epochs": 2, "seed": 3}
FILTER = {"fcnet_hiddens": [8], "observation_filter": "MeanStdFilter"}
LSTM = {
    "fcnet_hiddens": [8],
    "max_seq_len": 4,
    "use_lstm": True,
    "lstm_cell_size": 5,
    "lstm_use_prev_action": True,
}
AUTOREGRESSIVE = {"fcnet_hiddens": [8], "use_autoregressive": True}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
all_models = pytest.mark.parametrize(
    "model", [FILTER, LSTM, AUTOREGRESSIVE], ids=["filter", "lstm", "autoregressive"]
)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "device", "message"),
    [
        ("torch", "gpu", "expected cpu, cuda, cuda:1, …, mps or"),
        ("torch", "cuda:one", "expected cpu, cuda"),
        ("torch", "cuda:99", r"sees \d devices of this kind"),
        ("tf", "mps", "expected cpu, cuda, cuda:1, … or auto"),
        ("tf", "cuda:99", r"sees \d GPUs"),
    ],
)
def test_unknown_device_is_refused(framework, device, message):
    config = {**SMALL, "framework": framework, "model": FILTER, "device": device}

    with pytest.raises(ConfigError, match=message):
        PPO(DriftEnv, config)


def test_error_about_device_names_framework():
    config = {**SMALL, "framework": "tf", "model": FILTER, "device": "mps"}

    with pytest.raises(ConfigError, match="with framework='tf'"):
        PPO(DriftEnv, config)


@both_frameworks
def test_auto_trains_on_any_machine(framework):
    config = {**SMALL, "framework": framework, "model": FILTER, "device": "auto"}
    algo = PPO(DriftEnv, config)

    algo.train()

    if not torch.cuda.is_available():
        assert algo.policy.device == "cpu"


# --- where a batch is -----------------------------------------------------------------------------


def collect_batch(algo):
    return algo._batch(algo._collector.collect(12))


@all_models
def test_batch_is_placed_on_device_of_policy(model):
    algo = PPO(DriftEnv, {**SMALL, "framework": "torch", "model": model, "kl_coeff": 0.1})
    batch = collect_batch(algo)
    algo.policy.to("meta")

    placed = algo._learner.minibatch_optimizer.place_batch(batch)

    for name in ("obs", "raw_action", "logp", "advantage", "target"):
        assert placed[name].device.type == "meta", name


@all_models
def test_update_computes_on_device_of_policy(model):
    algo = PPO(DriftEnv, {**SMALL, "framework": "torch", "model": model, "kl_coeff": 0.1})
    batch = collect_batch(algo)
    # Tensors on the meta device have no values, so that copying one back is an error.
    algo.policy.to("meta")
    optimizer = type(algo._learner.minibatch_optimizer)(algo.policy, algo.config)
    hyperparameters = UpdateHyperparameters(lr=1e-3, kl_coeff=0.1)

    placed = optimizer.place_batch(batch)
    rng = np.random.default_rng(0)
    for minibatch in minibatches(placed, size=16, rng=rng, select_rows=optimizer.rows):
        gradient = optimizer._compute_gradient(
            minibatch, hyperparameters, check_rows=False, entropy=True
        )

        assert gradient.loss.device.type == "meta"
        assert gradient.norm.device.type == "meta"
        for name, weight in algo.policy.model.named_parameters():
            assert weight.grad.device.type == "meta", name


@both_frameworks
def test_batch_on_cpu_is_not_copied(framework):
    algo = PPO(DriftEnv, {**SMALL, "framework": framework, "model": LSTM})
    batch = collect_batch(algo)

    placed = algo._learner.minibatch_optimizer.place_batch(batch)

    for name in ("obs", "raw_action", "logp"):
        assert np.shares_memory(np.asarray(placed[name]), batch[name]), name


@both_frameworks
def test_minibatches_of_placed_batch_have_same_rows(framework):
    algo = PPO(DriftEnv, {**SMALL, "framework": framework, "model": LSTM})
    batch = collect_batch(algo)
    optimizer = algo._learner.minibatch_optimizer
    # Another name of the CPU, so that the batch is treated as on any other device.
    algo.policy.device = {"torch": "cpu:0", "tf": "/cpu:0"}[framework]

    placed = optimizer.place_batch(batch)

    # Both are shuffled with the same seed.
    expected_parts = minibatches(batch, 16, np.random.default_rng(0))
    parts = minibatches(placed, 16, np.random.default_rng(0), select_rows=optimizer.rows)
    for part, expected in zip(parts, expected_parts, strict=True):
        np.testing.assert_array_equal(part["seq_lens"], expected["seq_lens"])
        for name in ("obs", "raw_action", "logp", "advantage", "target"):
            assert not isinstance(part[name], np.ndarray), name  # but a tensor
            np.testing.assert_array_equal(np.asarray(part[name]), expected[name], err_msg=name)
        for memory, expected_memory in zip(part["state"], expected["state"], strict=True):
            np.testing.assert_array_equal(np.asarray(memory), expected_memory)


@all_models
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that PyTorch can use")
def test_gpu_learns_same_as_cpu(model):
    config = {**SMALL, "framework": "torch", "model": model}
    on_cpu = PPO(DriftEnv, config)
    on_gpu = PPO(DriftEnv, {**config, "device": "cuda"})
    on_gpu.policy.model.set_weights(on_cpu.policy.model.get_weights())
    batch = collect_batch(on_cpu)

    for algo in (on_cpu, on_gpu):
        algo._learner.rng = np.random.default_rng(0)  # the same minibatches
        algo._learner.update(batch, lr=1e-3)

    weights = on_gpu.policy.model.get_weights()
    for name, expected in on_cpu.policy.model.get_weights().items():
        np.testing.assert_allclose(weights[name], expected, rtol=1e-3, atol=1e-5, err_msg=name)


@all_models
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that PyTorch can use")
def test_weights_stay_on_gpu_during_training(model):
    algo = PPO(DriftEnv, {**SMALL, "framework": "torch", "model": model, "device": "cuda"})

    algo.train()

    assert {weight.device.type for weight in algo.policy.model.parameters()} == {"cuda"}
