"""A gated transformer after the default net, on a memory task, in PyTorch and
TensorFlow.

Each step shows a symbol, and the agent is rewarded for naming the symbol of the
previous step. Without a memory, it can only guess. Run the example with `--without` to
see what the same net learns when it has no attention, or in TensorFlow with `python
examples/attention_net.py --framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from rlcatalog_ppo import PPO

MODEL = {
    "fcnet_hiddens": [32],
    "use_attention": True,
    "attention_num_transformer_units": 1,
    "attention_dim": 32,
    "attention_num_heads": 2,
    "attention_head_dim": 16,
    "attention_position_wise_mlp_dim": 32,
    "attention_memory_inference": 8,
    "attention_memory_training": 8,
    "max_seq_len": 10,
}


class RepeatAfterMe(gym.Env):
    """Environment that shows random symbols for 50 steps; naming the previous symbol
    pays 1, any other symbol -1.
    """

    observation_space = Discrete(3)
    action_space = Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[int, dict[str, Any]]:
        """Show a first symbol."""
        super().reset(seed=seed)
        self.steps = 0
        self.shown = self._draw()
        self.before = self.shown  # the first answer may name the symbol itself
        return self.shown, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Reward the answer and show the next symbol."""
        reward = 1.0 if action == self.before else -1.0
        self.steps += 1
        self.before = self.shown
        self.shown = self._draw()
        return self.shown, reward, self.steps == 50, False, {}

    def _draw(self) -> int:
        return int(self.np_random.integers(3))


def main() -> None:
    """Train, print the mean return, and show the memory at one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument(
        "--without", action="store_true", help="leave the attention out"
    )
    arguments = parser.parse_args()
    model = {**MODEL, "use_attention": not arguments.without}
    algo = PPO(
        env=RepeatAfterMe,
        config={
            "framework": arguments.framework,
            "model": model,
            "lr": 5e-4,
            "gamma": 0.0,  # each answer is rewarded at once
            "seed": 0,
        },
    )
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    step = algo.policy.act(np.array([0, 1, 2]))
    if step.state is not None:
        print("state of a batch of three:", [part.shape for part in step.state.memory])
    algo.stop()


if __name__ == "__main__":
    main()
