"""PPO with plain memories: it trains them, and restores them with their code."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn

from rlcatalog.errors import ConfigError, UnknownNameError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.minibatches import minibatches
from rlcatalog_tf import keras

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

SMALL = {"num_envs": 2, "rollout_length": 16, "num_epochs": 1, "minibatch_size": 16, "seed": 3}
MODEL = {"fcnet_hiddens": [8], "max_seq_len": 4}


class Traces(nn.Module):
    """A memory of one step, whose state is a tuple of a vector and a matrix."""

    def __init__(self, width, size=4):
        super().__init__()
        self.size = size
        self.layer = nn.Linear(width + size, size)

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, self.size), torch.ones(batch_size, 2, 3)

    def forward(self, x, state):
        fast, slow = state
        fast = torch.tanh(self.layer(torch.cat([x, fast], dim=1)))
        return fast, (fast, 0.5 * slow)


MEMORIES = [
    pytest.param(functools.partial(nn.GRU, hidden_size=5, num_layers=2), "torch", id="gru-2"),
    pytest.param(functools.partial(nn.LSTM, hidden_size=5), "torch", id="lstm"),
    pytest.param(Traces, "torch", id="own-module"),
    pytest.param(functools.partial(keras.layers.GRU, 5), "tf", id="keras-gru"),
]


def make_ppo(memory, framework="torch", **model):
    config = {**SMALL, "framework": framework, "model": {**MODEL, **model}}
    return PPO("CartPole-v1", config, memory=memory)


def weights_of(algo):
    return {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}


@pytest.mark.grid
@pytest.mark.parametrize(("memory", "framework"), MEMORIES)
@pytest.mark.parametrize("share", [True, False], ids=["shared", "separate-value"])
def test_training_changes_every_weight(memory, framework, share):
    algo = make_ppo(memory, framework, vf_share_layers=share)
    before = weights_of(algo)

    algo.train()

    unchanged = []
    for name, weight in weights_of(algo).items():
        if np.array_equal(weight, before[name]):
            unchanged.append(name)
    assert unchanged == []


@pytest.mark.parametrize(("memory", "framework"), MEMORIES)
def test_minibatches_score_actions_as_acting_did(memory, framework):
    algo = make_ppo(memory, framework)
    algo._collector.collect(17)

    # The second rollout begins in the middle of episodes.
    batch = training_batch(algo._collector.collect(17), gamma=0.9, lambda_=0.9)

    for part in minibatches(batch, 16, np.random.default_rng(0)):
        logp = algo.policy.evaluate(part).logp
        if isinstance(logp, torch.Tensor):
            logp = logp.detach()
        np.testing.assert_allclose(logp, part["logp"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", [Traces, functools.partial(nn.GRU, hidden_size=5)])
def test_restored_run_continues_identically(memory, tmp_path):
    algo = make_ppo(memory)
    algo.train()
    algo.save_checkpoint(tmp_path)
    algo.train()

    restored = PPO.restore(tmp_path, memory=memory)
    restored.train()

    expected_weights = weights_of(algo)
    for name, weight in weights_of(restored).items():
        np.testing.assert_array_equal(weight, expected_weights[name])


def test_restore_asks_for_the_code_of_a_memory(tmp_path):
    make_ppo(Traces).save_checkpoint(tmp_path)

    with pytest.raises(UnknownNameError, match="Pass its code: ") as caught:
        PPO.restore(tmp_path)

    assert f"PPO.restore('{tmp_path}', memory=Traces)" in str(caught.value)


def test_memory_and_policy_are_an_error():
    policy = make_ppo(Traces).policy

    with pytest.raises(ConfigError, match="memory= and policy= are both given"):
        PPO("CartPole-v1", SMALL, memory=Traces, policy=policy)
