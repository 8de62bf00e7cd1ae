"""PPO over actions whose parts depend on one another: what is stored scores as it was drawn, and
updates work.
"""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from command_line import rlcatalog
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from rlcatalog_ppo import PPO
from rlcatalog_ppo.learner import minibatches

SHORT = {
    "num_envs": 3,
    "rollout_length": 16,
    "minibatch_size": 16,
    "num_epochs": 2,
    "entropy_coeff": 0.01,
    "seed": 0,
}
LSTM = {"use_lstm": True, "lstm_cell_size": 5, "lstm_use_prev_action": True, "max_seq_len": 4}


class Agree(gym.Env):
    """Pays where both choices are the same, and for aiming at the middle; shows which values may be
    chosen.
    """

    observation_space = Dict(
        {
            "x": Box(-1, 1, (2,), np.float32),
            "action_mask": Tuple([MultiBinary(3), Box(0, 1, (0,), np.int8), MultiBinary(3)]),
        }
    )
    action_space = Tuple([Discrete(3), Box(-1, 1, (1,), np.float32), Discrete(3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self._look(), {}

    def step(self, action):
        assert self.mask[action[0]]
        assert self.mask[action[2]]
        self.left -= 1
        return (
            self._look(),
            float(action[0] == action[2]) - float(action[1][0] ** 2),
            self.left == 0,
            False,
            {},
        )

    def _look(self):
        self.mask = np.ones(3, np.int8)
        self.mask[self.np_random.integers(3)] = 0
        return {
            "x": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "action_mask": (self.mask, np.zeros(0, np.int8), self.mask),
        }


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        ("torch", "none"),
        ("torch", "lstm"),
        *(pytest.param("tf", memory, marks=pytest.mark.attack) for memory in ("none", "lstm")),
    ],
)
def test_ppo_scores_what_is_stored_as_it_was_drawn_and_learns_from_it(ar, framework, memory):
    model = {**ar.SMALL, "autoregressive_order": [2], **(LSTM if memory == "lstm" else {})}
    algo = PPO(Agree, {**SHORT, "framework": framework, "model": model})
    ar.randomise(algo.policy.model)
    rollout = algo._collector.collect(16)
    batch = rollout.batch(0.9, 0.9, dist_inputs=True)
    for part in minibatches(batch, 16, np.random.default_rng(0)):
        found = algo.policy.evaluate(part)
        np.testing.assert_allclose(ar.array(found.logp), part["logp"], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(ar.array(found.kl), 0, atol=1e-4)
    before = algo.policy.model.get_weights()
    for _ in range(3):
        result = algo.train()
    learner = result["info"]["learner"]
    assert np.isfinite([value for value in learner.values() if isinstance(value, float)]).all()
    assert 0 < abs(learner["kl"]) < 0.5
    after = algo.policy.model.get_weights()
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    assert len(algo.evaluate(3)) == 3
    algo.stop()


def test_the_command_line_trains_and_evaluates(tmp_path):
    """In the example's environment, with the key alone."""
    examples = Path(__file__).resolve().parents[3] / "examples"
    where, out = "autoregressive_action_dist:Duet-v0", str(tmp_path / "run")

    def command(*arguments):
        found = rlcatalog(*arguments, cwd=examples)
        assert found.returncode == 0, found.stderr
        return found.stdout

    asked = ["--model", "use_autoregressive=true", "--model", "fcnet_hiddens=[8]"]
    assert (
        json.loads(command("explain", where, *asked, "--json"))["head"]["chosen"]
        == "autoregressive"
    )
    small = ["--set", "rollout_length=32", "--set", "minibatch_size=64"]
    command("train", where, "--steps", "256", "--out", out, *asked, *small)
    play = ("evaluate", out, "--episodes", "2", "--import", "autoregressive_action_dist")
    assert "mean return" in command(*play)
