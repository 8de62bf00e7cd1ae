"""PPO with autoregressive actions, in Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from autoregressive_policies import SMALL_MODEL, randomise_weights, to_numpy
from command_line import rlcatalog
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from rlcatalog_ppo import PPO
from rlcatalog_ppo.advantages import training_batch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LSTM = {"use_lstm": True, "lstm_cell_size": 5, "lstm_use_prev_action": True, "max_seq_len": 4}


class Agree(gym.Env):
    """Rewards two equal choices and an aim at the middle; one of three values is forbidden."""

    observation_space = Dict(
        {
            "x": Box(-1, 1, (2,), np.float32),
            "action_mask": Tuple([MultiBinary(3), Box(0, 1, (0,), np.int8), MultiBinary(3)]),
        }
    )
    action_space = Tuple([Discrete(3), Box(-1, 1, (1,), np.float32), Discrete(3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps_left = 5
        return self._observe(), {}

    def step(self, action):
        first, aim, second = action
        assert self.mask[first]
        assert self.mask[second]
        self.steps_left -= 1
        reward = float(first == second) - float(aim[0] ** 2)
        return self._observe(), reward, self.steps_left == 0, False, {}

    def _observe(self):
        self.mask = np.ones(3, np.int8)
        self.mask[self.np_random.integers(3)] = 0
        x = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"x": x, "action_mask": (self.mask, np.zeros(0, np.int8), self.mask)}


def build_ppo(framework, memory):
    """Build PPO in the environment `Agree`, with random weights."""
    model = {**SMALL_MODEL, "autoregressive_order": [2]}
    if memory == "lstm":
        model |= LSTM
    algo = PPO(
        Agree,
        {
            "framework": framework,
            "model": model,
            "num_envs": 3,
            "rollout_length": 16,
            "minibatch_size": 16,
            "num_epochs": 2,
            "entropy_coeff": 0.01,
            "seed": 0,
        },
    )
    randomise_weights(algo.policy.model)
    return algo


each_policy = pytest.mark.parametrize(
    ("framework", "memory"),
    [
        ("torch", "none"),
        ("torch", "lstm"),
        pytest.param("tf", "none", marks=pytest.mark.slow),
        pytest.param("tf", "lstm", marks=pytest.mark.slow),
    ],
)


@each_policy
def test_ppo_scores_stored_actions_as_they_were_drawn(framework, memory):
    algo = build_ppo(framework, memory)

    rollout = algo._collector.collect(16)
    batch = training_batch(rollout, gamma=0.9, lambda_=0.9, dist_inputs=True)
    evaluation = algo.policy.evaluate(batch)

    np.testing.assert_allclose(to_numpy(evaluation.logp), batch["logp"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-4)
    algo.stop()


@each_policy
def test_ppo_trains_every_weight(framework, memory):
    algo = build_ppo(framework, memory)
    weights_before = algo.policy.model.get_weights()

    for _ in range(3):
        result = algo.train()

    weights_after = algo.policy.model.get_weights()
    for name in weights_before:
        assert np.isfinite(weights_after[name]).all(), name
        assert (weights_after[name] != weights_before[name]).any(), name
    assert 0 < result["info"]["learner"]["kl"] < 0.5  # the policy changed, but not far
    algo.stop()


@each_policy
def test_ppo_evaluates_episodes(framework, memory):
    algo = build_ppo(framework, memory)

    assert len(algo.evaluate(3)) == 3
    algo.stop()


# --- command line, in the environment of an example -----------------------------------------------

ENV_ID = "autoregressive_action_dist:Duet-v0"
MODEL_OPTIONS = ["--model", "use_autoregressive=true", "--model", "fcnet_hiddens=[8]"]


def run_command(*arguments):
    """Run `rlcatalog` in the folder of examples, and return its output."""
    result = rlcatalog(*arguments, cwd=EXAMPLES)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_command_explains_the_head():
    output = run_command("explain", ENV_ID, *MODEL_OPTIONS, "--json")

    assert json.loads(output)["head"]["chosen"] == "autoregressive"


def test_commands_train_and_evaluate(tmp_path):
    out = str(tmp_path / "run")
    small = ["--set", "rollout_length=32", "--set", "minibatch_size=64"]

    run_command("train", ENV_ID, "--steps", "256", "--out", out, *MODEL_OPTIONS, *small)
    output = run_command(
        "evaluate", out, "--episodes", "2", "--import", "autoregressive_action_dist"
    )

    assert "mean return" in output
