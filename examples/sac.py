"""Soft actor-critic in one file, with models from the catalog; PyTorch or TensorFlow.

The networks come from the catalog. The actor is a policy with a squashed Gaussian
distribution, and `build_action_critic` builds the critics. This file contains the
replay buffer, the losses, the temperature and the training loop.

It supports a bounded Box of actions, and models without a memory, including your own.
For a critic, the action is one more entry of the observation. Run it with
`python examples/sac.py --env Pendulum-v1 --framework tf --seed 1`.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import rlcatalog

#: The config of the actor, and of the critics.
MODEL = {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"}
Q_MODEL = {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"}


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters; counts are environment steps.

    One training step follows each of them.
    """

    steps: int = 10_000
    learning_starts: int = 1_000  # random actions until then
    buffer_size: int = 100_000
    batch_size: int = 128
    lr: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.01  # how far the target critics go towards the critics at each step


class Batch(NamedTuple):
    """Transitions: encoded observations `[B, ...]`, actions, rewards and next
    observations.
    """

    obs: np.ndarray
    action: np.ndarray  # [B, ...]
    reward: np.ndarray  # [B]
    terminal: np.ndarray  # [B], 1.0 at terminal steps; a time limit does not count
    next_obs: np.ndarray


class Replay:
    """Ring buffer of the last `size` transitions."""

    def __init__(
        self, size: int, obs_space: gym.spaces.Box, action_space: gym.spaces.Box
    ) -> None:
        many = (size, *obs_space.shape)
        self.columns = Batch(
            np.zeros(many, obs_space.dtype),
            np.zeros((size, *action_space.shape), np.float32),
            np.zeros(size, np.float32),
            np.zeros(size, np.float32),
            np.zeros(many, obs_space.dtype),
        )
        self.size = size
        self.added = 0

    def add(self, *transition: Any) -> None:
        """Add one transition, replacing the oldest one."""
        for column, value in zip(self.columns, transition, strict=True):
            column[self.added % self.size] = value
        self.added += 1

    def sample(self, count: int, rng: np.random.Generator) -> Batch:
        """Draw transitions, with replacement."""
        rows = rng.integers(min(self.added, self.size), size=count)
        return Batch(*(column[rows] for column in self.columns))


class Nets(NamedTuple):
    """The networks: an actor and two critics.

    Taking the smaller of two values reduces overestimation.
    """

    actor: rlcatalog.Policy
    critics: list[Any]
    targets: list[Any]


def build(
    obs_space: Any,
    action_space: Any,
    framework: str,
    model: Any,
    q_model: Any,
    seed: int,
) -> Nets:
    """Return the actor and the critics."""
    if framework == "torch":
        import torch

        from rlcatalog_torch import build_action_critic

        torch.manual_seed(seed)
    else:
        from rlcatalog_tf import build_action_critic, tf

        tf.keras.utils.set_random_seed(seed)
    config = {"custom_action_dist": "squashed_gaussian", **model}
    actor = rlcatalog.build(obs_space, action_space, config, framework)
    if actor.memory:
        raise ValueError(
            "This example replays single steps; a model with memory needs sequences."
        )
    critics = [build_action_critic(obs_space, action_space, q_model) for _ in range(2)]
    return Nets(actor, critics, targets=copy.deepcopy(critics))


# --- in each framework: one training step ---------------------------------------------


def torch_learner(
    nets: Nets, target_entropy: float, hyper: Hyper
) -> Callable[[Batch], None]:
    """Return the function `update(batch)`."""
    import torch
    from torch.nn.functional import mse_loss

    actor = nets.actor.as_module()
    critics = nets.critics
    log_alpha = torch.zeros((), requires_grad=True)
    q_weights = [p for critic in critics for p in critic.parameters()]
    target_weights = [p for target in nets.targets for p in target.parameters()]
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=hyper.lr, fused=True)
    q_optimizer = torch.optim.Adam(q_weights, lr=hyper.lr, fused=True)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=hyper.lr)

    def smaller_q(
        pair: list[Any], obs: torch.Tensor, action: torch.Tensor
    ) -> torch.Tensor:
        return torch.minimum(*(net(obs, action) for net in pair)).squeeze(1)

    def update(batch: Batch) -> None:
        b = Batch(*map(torch.from_numpy, batch))
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            dist, _ = actor(b.next_obs)
            action = dist.sample()
            next_q = smaller_q(nets.targets, b.next_obs, action)
            following = next_q - alpha * dist.logp(action)
            goal = b.reward + hyper.gamma * (1 - b.terminal) * following
        q_loss = sum(
            mse_loss(critic(b.obs, b.action).squeeze(1), goal) for critic in critics
        )
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        dist, _ = actor(b.obs)
        action = dist.rsample()  # the gradient goes through the action into the actor
        logp = dist.logp(action)
        actor_optimizer.zero_grad()
        (alpha * logp - smaller_q(critics, b.obs, action)).mean().backward()
        actor_optimizer.step()

        alpha_optimizer.zero_grad()
        (-log_alpha * (logp.detach().mean() + target_entropy)).backward()
        alpha_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(target_weights, q_weights, hyper.tau)

    return update


def tf_learner(
    nets: Nets, target_entropy: float, hyper: Hyper
) -> Callable[[Batch], None]:
    """Return the function `update(batch)`, whose step is traced."""
    from rlcatalog_tf import tf

    actor = nets.actor.as_module()
    critics = nets.critics
    log_alpha = tf.Variable(0.0)
    actor_weights = actor.trainable_variables
    q_weights = [v for critic in critics for v in critic.trainable_variables]
    target_weights = [v for target in nets.targets for v in target.trainable_variables]
    optimizers = [tf.keras.optimizers.Adam(hyper.lr) for _ in range(3)]
    for optimizer, weights in zip(
        optimizers, (actor_weights, q_weights, [log_alpha]), strict=True
    ):
        optimizer.build(weights)
    actor_optimizer, q_optimizer, alpha_optimizer = optimizers

    def q_of(net: Any, obs: Any, action: Any) -> Any:
        return tf.squeeze(net(obs, action), axis=1)

    def smaller_q(pair: list[Any], obs: Any, action: Any) -> Any:
        return tf.minimum(*(q_of(net, obs, action) for net in pair))

    @tf.function
    def step(b: Batch) -> None:
        alpha = tf.exp(log_alpha)
        dist, _ = actor(b.next_obs)
        action = dist.sample()
        next_q = smaller_q(nets.targets, b.next_obs, action)
        following = next_q - alpha * dist.logp(action)
        goal = b.reward + hyper.gamma * (1 - b.terminal) * following
        with tf.GradientTape() as tape:
            losses = [
                tf.reduce_mean(tf.square(q_of(critic, b.obs, b.action) - goal))
                for critic in critics
            ]
            q_loss = tf.add_n(losses)
        q_optimizer.apply(tape.gradient(q_loss, q_weights), q_weights)

        with tf.GradientTape() as tape:
            dist, _ = actor(b.obs)
            # The gradient goes through the action into the actor.
            action = dist.rsample()
            logp = dist.logp(action)
            actor_loss = tf.reduce_mean(
                alpha * logp - smaller_q(critics, b.obs, action)
            )
        # The actor's value layer is not used: its gradient is zero.
        zero = tf.UnconnectedGradients.ZERO
        actor_optimizer.apply(
            tape.gradient(actor_loss, actor_weights, unconnected_gradients=zero),
            actor_weights,
        )

        alpha_optimizer.apply([-(tf.reduce_mean(logp) + target_entropy)], [log_alpha])
        for target, weight in zip(target_weights, q_weights, strict=True):
            target.assign_add(hyper.tau * (weight - target))

    def update(batch: Batch) -> None:
        step(Batch(*map(tf.constant, batch)))

    return update


# --- the loop -------------------------------------------------------------------------


def train(
    env: str | Callable[[], gym.Env] = "Pendulum-v1",
    framework: str = "torch",
    seed: int = 0,
    *,
    model: Mapping[str, Any] = MODEL,
    q_model: Mapping[str, Any] = Q_MODEL,
    hyper: Hyper | None = None,
    episodes: int = 100,
) -> list[float]:
    """Train, play final episodes with deterministic actions, and return their
    returns.

    `env` is a Gymnasium id or a function that creates an environment whose actions are
    a bounded Box. `model` is the actor's config, and `q_model` is the critics' config.
    """
    hyper = hyper or Hyper()
    make = env if callable(env) else partial(gym.make, env)
    played = make()
    action_space = played.action_space
    action_space.seed(seed)
    rng = np.random.default_rng(seed)
    nets = build(
        played.observation_space, action_space, framework, model, q_model, seed
    )
    actor = nets.actor
    # The usual target is -1 per action between -1 and 1; in wider bounds the same
    # spread has more entropy.
    target_entropy = float(
        np.sum(np.log((action_space.high - action_space.low) / 2) - 1)
    )
    make_learner = torch_learner if framework == "torch" else tf_learner
    update = make_learner(nets, target_entropy, hyper)
    replay = Replay(hyper.buffer_size, actor.encoded_space, action_space)

    def encode(shown: Any) -> np.ndarray:
        return actor.preprocess([shown])[0]

    obs = encode(played.reset(seed=seed)[0])
    returns = []
    running = 0.0
    begin = time.perf_counter()
    for t in range(hyper.steps):
        if t < hyper.learning_starts:
            action = action_space.sample()
        else:
            action = actor.act_encoded(obs[None]).action[0]
        shown, reward, terminated, truncated, _ = played.step(action)
        next_obs = encode(shown)
        replay.add(obs, action, reward, terminated, next_obs)
        obs = next_obs
        running += float(reward)
        if terminated or truncated:
            returns.append(running)
            obs = encode(played.reset()[0])
            running = 0.0
        if t >= hyper.learning_starts:
            update(replay.sample(hyper.batch_size, rng))
        if (t + 1) % 1_000 == 0:
            print(
                f"{t + 1:7d} steps, {time.perf_counter() - begin:4.0f} s, mean return"
                f" {np.mean(returns[-5:]):.1f}"
            )
    played.close()
    return play(
        make,
        lambda shown: actor.act([shown], explore=False).action[0],
        episodes,
        seed + 10_000,
    )


def play(
    make: Callable[[], gym.Env], act: Callable[[Any], Any], episodes: int, seed: int
) -> list[float]:
    """Play new episodes and return their returns."""
    env = make()
    returns = []
    for episode in range(episodes):
        shown, _ = env.reset(seed=seed + episode)
        running = 0.0
        done = False
        while not done:
            shown, reward, terminated, truncated, _ = env.step(act(shown))
            running += float(reward)
            done = terminated or truncated
        returns.append(running)
    env.close()
    return returns


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Hyper.steps)
    parser.add_argument(
        "--episodes",
        type=int,
        default=100,
        help="number of episodes to play at the end",
    )
    arguments = parser.parse_args()
    returns = train(
        arguments.env,
        arguments.framework,
        arguments.seed,
        hyper=Hyper(steps=arguments.steps),
        episodes=arguments.episodes,
    )
    print(
        f"mean return over {len(returns)} episodes: {np.mean(returns):.1f} (lowest"
        f" {np.min(returns):.0f})"
    )


if __name__ == "__main__":
    main()
