"""Dueling double DQN in one file, with models from the catalog; PyTorch or TensorFlow.

The catalog's `build_action_critic` builds the network and its preprocessor. This file
contains the replay buffer, the loss and the training loop.

It supports discrete actions, and models without a memory, including your own. If a Dict
observation contains an action mask under `"action_mask"`, the forbidden actions are
never taken, and their values never become targets.

Run it with `python examples/dqn.py --env CartPole-v1 --framework tf --seed 1`.
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

#: With zero biases, the default, every kink of a ReLU network's first layer goes
#: through the origin. Random biases spread the kinks over the observations, so that
#: values far from the origin can differ.
MODEL = {
    "fcnet_hiddens": [128, 128],
    "fcnet_activation": "relu",
    "fcnet_weights_initializer": "kaiming_uniform",
    "fcnet_bias_initializer": "uniform",
    "fcnet_bias_initializer_config": {"a": -0.5, "b": 0.5},
}


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters; counts are environment steps."""

    steps: int = 80_000
    learning_starts: int = 1_000
    train_every: int = 2
    # Each copy lets the values see one step further, and leaves less time to settle.
    target_every: int = 100
    buffer_size: int = 80_000
    batch_size: int = 128
    # Falls linearly to zero, so that no unlucky step determines the last policy.
    lr: float = 1e-3
    gamma: float = 0.99
    epsilon_end: float = 0.02
    epsilon_steps: int = 10_000  # from 1 down to epsilon_end


class Batch(NamedTuple):
    """Transitions: encoded observations `[B, ...]`, actions, rewards and next
    observations.
    """

    obs: np.ndarray
    action: np.ndarray  # [B], int64, counted from 0
    reward: np.ndarray  # [B]
    # [B], discount of the next value: gamma, or 0 after a termination (not after a time
    # limit).
    discount: np.ndarray
    next_obs: np.ndarray
    next_mask: np.ndarray  # [B, n], booleans: the next allowed actions


class Replay:
    """Ring buffer of the last `size` transitions."""

    def __init__(self, size: int, obs_space: gym.spaces.Box, n: int) -> None:
        many = (size, *obs_space.shape)
        self.columns = Batch(
            np.zeros(many, obs_space.dtype),
            np.zeros(size, np.int64),
            np.zeros(size, np.float32),
            np.zeros(size, np.float32),
            np.zeros(many, obs_space.dtype),
            np.zeros((size, n), bool),
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


def mask_of(obs: Any, n: int) -> np.ndarray:
    """Return an observation's mask as booleans `[n]`; all are True if it
    has no mask.
    """
    shown = obs.get("action_mask") if isinstance(obs, Mapping) else None
    return np.ones(n, bool) if shown is None else np.asarray(shown, bool)


def without_mask(obs: Any) -> Any:
    """Return an observation as the network sees it."""
    if not isinstance(obs, Mapping):
        return obs
    return {key: entry for key, entry in obs.items() if key != "action_mask"}


def best(q: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the allowed actions that have the highest value, `[B]`."""
    return np.where(mask, q, -np.inf).argmax(axis=-1)


# --- in each framework: values for acting, and one training step ----------------------


def torch_learner(
    model: Any, target: Any, lr: float
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions `q_values(obs) -> [B, n]` and `update(batch, lr)`."""
    import torch
    from torch.nn.functional import mse_loss

    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)

    @torch.inference_mode()
    def q_values(obs: np.ndarray) -> np.ndarray:
        return model(torch.from_numpy(obs)).numpy()

    def update(batch: Batch, lr: float) -> None:
        b = Batch(*map(torch.from_numpy, batch))
        with torch.no_grad():
            # Double: the network chooses the next action, the target network estimates
            # its value.
            hoped = model(b.next_obs).masked_fill(~b.next_mask, -torch.inf)
            choice = hoped.argmax(dim=1, keepdim=True)
            following = target(b.next_obs).gather(1, choice).squeeze(1)
            goal = b.reward + b.discount * following
        taken = model(b.obs).gather(1, b.action[:, None]).squeeze(1)
        loss = mse_loss(taken, goal)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return q_values, update


def tf_learner(
    model: Any, target: Any, lr: float
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the traced functions `q_values(obs) -> [B, n]` and `update(batch, lr)`."""
    from rlcatalog_tf import tf

    weights = model.trainable_variables
    optimizer = tf.keras.optimizers.Adam(lr)
    optimizer.build(weights)
    space = model.preprocessor.observation_space
    any_obs = tf.TensorSpec([None, *space.shape], space.dtype)
    traced_q_values = tf.function(model, input_signature=[any_obs])

    @tf.function
    def step(b: Batch) -> None:
        # Double: the network chooses the next action, the target network estimates its
        # value.
        hoped = tf.where(b.next_mask, model(b.next_obs), -np.inf)
        choice = tf.argmax(hoped, axis=1)
        following = tf.gather(target(b.next_obs), choice, batch_dims=1)
        goal = b.reward + b.discount * following
        with tf.GradientTape() as tape:
            taken = tf.gather(model(b.obs), b.action, batch_dims=1)
            loss = tf.reduce_mean(tf.square(taken - goal))
        optimizer.apply(tape.gradient(loss, weights), weights)

    def update(batch: Batch, lr: float) -> None:
        optimizer.learning_rate.assign(lr)
        step(Batch(*map(tf.constant, batch)))

    def q_values_of(obs: np.ndarray) -> np.ndarray:
        return traced_q_values(obs).numpy()

    return q_values_of, update


# --- the parts, and the loop ----------------------------------------------------------


def build(
    obs_space: Any,
    action_space: Any,
    framework: str,
    model: Any,
    dueling: bool,
    seed: int,
) -> list[Any]:
    """Return the network and the target network."""
    if framework == "torch":
        import torch

        from rlcatalog_torch import build_action_critic

        torch.manual_seed(seed)
    else:
        from rlcatalog_tf import build_action_critic, tf

        tf.keras.utils.set_random_seed(seed)
    net = build_action_critic(obs_space, action_space, model, dueling=dueling)
    return [net, copy.deepcopy(net)]


def train(
    env: str | Callable[[], gym.Env] = "CartPole-v1",
    framework: str = "torch",
    seed: int = 0,
    *,
    model: Mapping[str, Any] | None = None,
    dueling: bool = True,
    hyper: Hyper | None = None,
    episodes: int = 100,
) -> list[float]:
    """Train, play final episodes with the best actions, and return their returns.

    `env` is a Gymnasium id or a function that creates an environment, and `model` is
    the model config. Without `dueling`, the network has no separate value of states.
    """
    hyper = hyper or Hyper()
    make = env if callable(env) else partial(gym.make, env)
    played = make()
    action_space = played.action_space
    n = int(action_space.n)
    start = int(action_space.start)
    rng = np.random.default_rng(seed)
    model = MODEL if model is None else model
    net, target = build(
        played.observation_space, action_space, framework, model, dueling, seed
    )
    make_learner = torch_learner if framework == "torch" else tf_learner
    q_values, update = make_learner(net, target, hyper.lr)
    replay = Replay(hyper.buffer_size, net.preprocessor.observation_space, n)

    def encode(shown: Any) -> np.ndarray:
        return net.preprocessor.transform(without_mask(shown))

    shown, _ = played.reset(seed=seed)
    obs = encode(shown)
    mask = mask_of(shown, n)
    returns = []
    running = 0.0
    begin = time.perf_counter()
    for t in range(hyper.steps):
        epsilon = max(
            hyper.epsilon_end, 1 - (1 - hyper.epsilon_end) * t / hyper.epsilon_steps
        )
        if rng.random() < epsilon:
            action = rng.choice(np.flatnonzero(mask))
        else:
            action = best(q_values(obs[None])[0], mask)
        shown, reward, terminated, truncated, _ = played.step(action + start)
        next_obs = encode(shown)
        next_mask = mask_of(shown, n)
        # A terminal observation may allow no action, but a maximum needs at least one.
        discount = 0.0 if terminated else hyper.gamma
        replay.add(
            obs,
            action,
            reward,
            discount,
            next_obs,
            next_mask if next_mask.any() else np.ones(n, bool),
        )
        obs = next_obs
        mask = next_mask
        running += float(reward)
        if terminated or truncated:
            returns.append(running)
            shown, _ = played.reset()
            obs = encode(shown)
            mask = mask_of(shown, n)
            running = 0.0
        if t >= hyper.learning_starts and t % hyper.train_every == 0:
            update(
                replay.sample(hyper.batch_size, rng), hyper.lr * (1 - t / hyper.steps)
            )
        if t % hyper.target_every == 0:
            target.set_weights(net.get_weights())
        if (t + 1) % 5_000 == 0:
            print(
                f"{t + 1:7d} steps, {time.perf_counter() - begin:4.0f} s, mean return"
                f" {np.mean(returns[-20:]):.1f}"
            )
    played.close()
    return play(
        make,
        lambda shown: start + best(q_values(encode(shown)[None])[0], mask_of(shown, n)),
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
    parser.add_argument("--env", default="CartPole-v1")
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
