"""Where the model computes: names, and that a batch travels there once in an update."""

import numpy as np
import pytest
import torch
from drift_env import Drift

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.learner import minibatches
from rlcatalog_ppo.loss import Rates

SMALL = {"num_envs": 3, "rollout_length": 12, "minibatch_size": 16, "num_epochs": 2, "seed": 3}
MODELS = {
    "filter": {"fcnet_hiddens": [8], "observation_filter": "MeanStdFilter"},
    "lstm": {"fcnet_hiddens": [8], "max_seq_len": 4, "use_lstm": True, "lstm_cell_size": 5,
             "lstm_use_prev_action": True},
    "autoregressive": {"fcnet_hiddens": [8], "use_autoregressive": True},
}  # fmt: skip
#: What is tried: a real device where there is one.
GPUS = [device for device, there in (("cuda", torch.cuda.is_available()),) if there]


@pytest.mark.parametrize(
    ("framework", "device", "message"),
    [
        ("torch", "gpu", "expected cpu, cuda, cuda:1, …, mps or auto"),
        ("torch", "cuda:one", "expected cpu, cuda"),
        ("torch", "cuda:99", r"sees \d devices of this kind"),
        ("tf", "mps", "expected cpu, cuda, cuda:1, … or auto, with framework='tf'"),
        ("tf", "cuda:99", r"sees \d GPUs"),
    ],
)
def test_devices_that_are_none_are_said(framework, device, message):
    with pytest.raises(ConfigError, match=message):
        PPO(Drift, {**SMALL, "framework": framework, "model": MODELS["filter"], "device": device})


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_auto_is_what_there_is(framework):
    algo = PPO(
        Drift, {**SMALL, "framework": framework, "model": MODELS["filter"], "device": "auto"}
    )
    algo.train()
    assert GPUS or algo.policy.device == "cpu"


@pytest.mark.parametrize("model", MODELS)
def test_everything_of_an_update_is_on_the_device(model):
    algo = PPO(Drift, {**SMALL, "framework": "torch", "model": MODELS[model], "kl_coeff": 0.1})
    batch = algo._batch(algo._collector.collect(12))
    algo.policy.to("meta")  # nothing there can be brought back, as a copy in an update would
    optimizer = type(algo._learner.optimizer)(algo.policy, algo.config)
    for part in minibatches(optimizer.placed(batch), 16, np.random.default_rng(0), optimizer.rows):
        loss, _, norm = optimizer._descend(part, Rates(1e-3, 0.1), check=False, entropy=True)
        assert loss.device.type == norm.device.type == "meta"
        for name, weight in algo.policy.model.named_parameters():
            assert weight.grad.device.type == "meta", name
    moved = optimizer.placed(batch)
    assert all(
        moved[name].device.type == "meta"
        for name in ("obs", "raw_action", "logp", "advantage", "target")
    )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_rows_are_the_same_however_they_travel(framework):
    algo = PPO(Drift, {**SMALL, "framework": framework, "model": MODELS["lstm"]})
    batch = algo._batch(algo._collector.collect(12))
    optimizer = algo._learner.optimizer
    here = optimizer.placed(batch)
    assert all(
        np.shares_memory(np.asarray(here[name]), batch[name])
        for name in ("obs", "raw_action", "logp")
    )
    algo.policy.device = "cpu:0" if framework == "torch" else "/cpu:0"  # another name: it travels
    placed = optimizer.placed(batch)
    pairs = zip(
        minibatches(batch, 16, np.random.default_rng(0)),
        minibatches(placed, 16, np.random.default_rng(0), optimizer.rows),
        strict=True,
    )
    for here, there in pairs:
        for name, column in here.items():
            if name == "views":
                assert column.keys() == there[name].keys()
                continue
            parts = (
                zip(column, there[name], strict=True)
                if name == "state"
                else [(column, there[name])]
            )
            for one, other in parts:
                assert name == "seq_lens" or not isinstance(other, np.ndarray)
                np.testing.assert_array_equal(one, np.asarray(other), err_msg=name)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.skipif(not GPUS, reason="there is no GPU that PyTorch can use")
def test_gpu_learns_what_the_cpu_learns(model):
    config = {**SMALL, "framework": "torch", "model": MODELS[model]}
    here, there = PPO(Drift, config), PPO(Drift, {**config, "device": GPUS[0]})
    there.policy.model.set_weights(here.policy.model.get_weights())
    batch = here._batch(here._collector.collect(12))
    for algo in (here, there):
        algo._learner.rng = np.random.default_rng(0)
        algo._learner.update(batch, 1e-3)
    learned = {name: array.copy() for name, array in there.policy.model.get_weights().items()}
    there.train()  # it collects there as well
    assert {w.device.type for w in there.policy.model.parameters()} == {GPUS[0]}
    for name, array in here.policy.model.get_weights().items():
        np.testing.assert_allclose(array, learned[name], rtol=1e-3, atol=1e-5, err_msg=name)
