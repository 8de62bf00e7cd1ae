"""PPO in one file, in the style of CleanRL, in TensorFlow; `rlcatalog.build` creates
the policy in one line.

The script supports any observation and action space, action masks inside Dict
observations, and any model without memory. Copy it if you want to change the algorithm
itself. Run it with `python examples/ppo_single_file_tf.py --env CartPole-v1 --seed 1`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

import rlcatalog
from rlcatalog_tf import keras, tf


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters; counts are environment steps."""

    steps: int = 100_000
    num_envs: int = 8
    length: int = 128  # per rollout and environment
    epochs: int = 10
    minibatch: int = 256
    lr: float = 1e-3  # falls linearly to zero
    gamma: float = 0.99
    lambda_: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.1
    entropy_weight: float = 0.0
    largest_gradient: float = 0.5


class Player:
    """Steps environments with a policy."""

    def __init__(
        self,
        policy: rlcatalog.Policy,
        envs: gym.vector.VectorEnv,
        hyper: Hyper,
        seed: int,
    ) -> None:
        self.policy = policy
        self.envs = envs
        self.hyper = hyper
        obs, _ = envs.reset(seed=seed)
        self.obs = policy.preprocess(obs, update=True)
        self.mask = policy.action_mask(obs)
        self.running = np.zeros(envs.num_envs)
        self.returns = []

    def rollout(self) -> dict[str, np.ndarray]:
        """Return the rows to learn from, `[T * N, ...]`."""
        policy = self.policy
        hyper = self.hyper
        steps = []
        for _ in range(hyper.length):
            step = policy.act_encoded(self.obs, mask=self.mask)
            row = {
                "obs": self.obs,
                "raw_action": step.raw_action,
                "logp": step.logp,
                "value": step.value,
            }
            if self.mask is not None:
                row["mask"] = self.mask
            obs, reward, terminated, truncated, _ = self.envs.step(step.action)
            done = terminated | truncated
            self.running += reward
            self.returns += self.running[done].tolist()
            self.running[done] = 0.0
            # After a time limit, the value of the last observation replaces the missing
            # rewards.
            row["reward"] = reward.astype(np.float32)
            row["done"] = done
            cut = truncated & ~terminated
            if cut.any():
                values = policy.values(policy.preprocess(obs))
                row["reward"][cut] += hyper.gamma * values[cut]
            # Only now, because a reset may overwrite the last observation.
            if done.any():
                obs, _ = self.envs.reset(options={"reset_mask": done})
            self.obs = policy.preprocess(obs, update=True)
            self.mask = policy.action_mask(obs)
            steps.append(row)
        columns = {name: np.stack([row[name] for row in steps]) for name in steps[0]}
        columns |= self.advantages(columns, policy.values(self.obs))
        return {
            name: column.reshape(-1, *column.shape[2:])
            for name, column in columns.items()
        }

    def advantages(
        self, columns: Mapping[str, np.ndarray], last_value: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return generalised advantage estimates and value targets, `[T, N]` (Schulman
        et al. 2016, equation 16).
        """
        value = columns["value"]
        advantage = np.zeros_like(columns["value"])
        following = last_value
        running = np.zeros_like(last_value)
        for t in reversed(range(len(value))):
            goes_on = 1.0 - columns["done"][t]
            error = (
                columns["reward"][t] + self.hyper.gamma * following * goes_on - value[t]
            )
            running = error + self.hyper.gamma * self.hyper.lambda_ * goes_on * running
            advantage[t] = running
            following = value[t]
        return {"advantage": advantage, "target": advantage + value}


class Adam(keras.optimizers.Adam):
    """Adam as in PyTorch.

    Keras adds epsilon before it corrects the second moment, which increases epsilon's
    effect.
    """

    @property
    def epsilon(self) -> tf.Tensor:
        """Epsilon, multiplied by the divisor of this step's bias correction."""
        return self._epsilon * tf.sqrt(
            1.0 - self.beta_2 ** tf.cast(self.iterations + 1, tf.float32)
        )

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self._epsilon = value


class Learner:
    """Improves a policy's weights with the PPO loss (Schulman et al. 2017, equations 7
    and 9).
    """

    def __init__(self, policy: rlcatalog.Policy, hyper: Hyper) -> None:
        self.policy = policy
        self.hyper = hyper
        self.weights = policy.model.trainable_variables()
        self.optimizer = Adam(hyper.lr, epsilon=1e-5)
        self.optimizer.build(self.weights)
        self.traced = tf.function(self._step, reduce_retracing=True)

    def step(self, batch: Mapping[str, np.ndarray], lr: float) -> None:
        """Take one optimiser step."""
        self.optimizer.learning_rate.assign(lr)
        self.traced({name: tf.constant(column) for name, column in batch.items()})

    def _step(self, batch: Mapping[str, tf.Tensor]) -> None:
        hyper = self.hyper
        advantage = batch["advantage"]
        rows = tf.cast(tf.size(advantage), tf.float32)
        deviation = tf.math.reduce_std(advantage) * tf.sqrt(rows / (rows - 1.0))
        advantage = (advantage - tf.reduce_mean(advantage)) / (deviation + 1e-8)
        with tf.GradientTape() as tape:
            evaluation = self.policy.evaluate(batch)
            ratio = tf.exp(evaluation.logp - batch["logp"])
            clipped = tf.clip_by_value(ratio, 1 - hyper.clip, 1 + hyper.clip)
            gain = tf.reduce_mean(tf.minimum(ratio * advantage, clipped * advantage))
            error = tf.reduce_mean(tf.square(evaluation.value - batch["target"]))
            loss = hyper.value_weight * 0.5 * error - gain
            if hyper.entropy_weight:
                loss = loss - hyper.entropy_weight * tf.reduce_mean(evaluation.entropy)
        gradients, _ = tf.clip_by_global_norm(
            tape.gradient(loss, self.weights), hyper.largest_gradient
        )
        self.optimizer.apply(gradients, self.weights)


def environments(env: str, count: int, **config: Any) -> gym.vector.VectorEnv:
    """Return a vector environment; the caller resets ended episodes."""
    how = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}
    return gym.make_vec(
        env, count, vectorization_mode="sync", vector_kwargs=how, **config
    )


def train(
    env: str = "CartPole-v1",
    seed: int = 0,
    *,
    model: Mapping[str, Any] | None = None,
    hyper: Hyper | None = None,
    env_config: Mapping[str, Any] | None = None,
) -> rlcatalog.Policy:
    """Train a policy.

    `env` is an environment's id, `env_config` contains its keyword arguments, and
    `model` is the model config.
    """
    hyper = hyper or Hyper()
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    envs = environments(env, hyper.num_envs, **(env_config or {}))
    policy = rlcatalog.build(env=envs, config=model, framework="tf")
    if policy.memory or policy.views:
        raise ValueError(
            "This example replays single steps; a model that looks back needs"
            " sequences."
        )
    player = Player(policy, envs, hyper, seed)
    learner = Learner(policy, hyper)
    begin = time.perf_counter()
    size = hyper.num_envs * hyper.length
    for done in range(0, hyper.steps, size):
        batch = player.rollout()
        lr = hyper.lr * (1 - done / hyper.steps)
        for _ in range(hyper.epochs):
            for rows in np.split(
                rng.permutation(size), range(hyper.minibatch, size, hyper.minibatch)
            ):
                learner.step({name: column[rows] for name, column in batch.items()}, lr)
        if player.returns and (done // size) % 10 == 9:
            seconds = time.perf_counter() - begin
            recent = np.mean(player.returns[-20:])
            print(f"{done + size:7d} steps, {seconds:4.0f} s, mean return {recent:.1f}")
    envs.close()
    return policy


def play(policy: rlcatalog.Policy, env: str, episodes: int, seed: int) -> list[float]:
    """Play new episodes with the most likely actions and return their returns."""
    envs = environments(env, 1)
    obs, _ = envs.reset(seed=seed)
    returns = []
    running = 0.0
    while len(returns) < episodes:
        obs, reward, terminated, truncated, _ = envs.step(
            policy.act(obs, explore=False).action
        )
        running += float(reward[0])
        if terminated[0] or truncated[0]:
            returns.append(running)
            running = 0.0
            obs, _ = envs.reset()
    envs.close()
    return returns


def main() -> None:
    """Train, play, and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Hyper.steps)
    parser.add_argument(
        "--episodes",
        type=int,
        default=100,
        help="number of episodes to play at the end",
    )
    arguments = parser.parse_args()
    # Small nets: more threads wait for one another.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    policy = train(arguments.env, arguments.seed, hyper=Hyper(steps=arguments.steps))
    returns = play(policy, arguments.env, arguments.episodes, arguments.seed + 10_000)
    print(
        f"mean return over {len(returns)} episodes: {np.mean(returns):.1f} (lowest"
        f" {np.min(returns):.0f})"
    )


if __name__ == "__main__":
    main()
