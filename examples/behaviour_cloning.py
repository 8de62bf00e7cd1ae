"""Behaviour cloning: a policy learns to repeat an expert's actions, in PyTorch or
TensorFlow.

The expert is a rule of a few lines. The example records its actions, and then learns
only from these records. They contain the actions that the environment received.
`policy.raw_action` converts them into raw actions, which `policy.evaluate` scores. The
actions may be discrete or continuous.

Run it with `python examples/behaviour_cloning.py --env Pendulum-v1 --framework tf`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import rlcatalog

Array = np.ndarray[Any, Any]

#: With one spread per state, the network would fit the states in which the expert is
#: nearly deterministic, and neglect the others. One spread for all states
#: (`free_log_std`) weights them equally.
MODEL = {
    "CartPole-v1": {"fcnet_hiddens": [64, 64]},
    "Pendulum-v1": {"fcnet_hiddens": [64, 64], "free_log_std": True},
}


def balance(obs: Array) -> int:
    """Return the CartPole expert's action: push in the direction in which the pole
    falls or the cart should return.
    """
    position, speed, angle, turning = obs
    return int(0.1 * position + 0.3 * speed + 3.0 * angle + turning > 0)


def swing_up(obs: Array) -> Array:
    """Return the Pendulum expert's action: add energy until it is enough for the
    upright position, then hold it.
    """
    up, side, turning = (float(value) for value in obs)  # upright, up is 1 and side 0
    if up > 0.85:
        torque = -12.0 * side - 3.0 * turning
    else:
        energy = turning**2 / 6 + 5.0 * up
        torque = 2.0 * turning * (5.5 - energy)
    return np.clip(np.array([torque], np.float32), -2, 2)


EXPERTS: dict[str, Callable[[Array], Any]] = {
    "CartPole-v1": balance,
    "Pendulum-v1": swing_up,
}


def record(
    env: gym.Env,
    expert: Callable[[Array], Any],
    steps: int,
    seed: int,
    noise: float = 0.2,
) -> dict[str, Any]:
    """Record an expert's observations, `obs`, and its actions, `actions`.

    Sometimes the environment receives a different action than the recorded one, so that
    the records also contain states which the expert would not visit.
    """
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    seen = []
    done = []
    obs, _ = env.reset(seed=seed)
    for _ in range(steps):
        seen.append(obs)
        done.append(expert(obs))
        taken = env.action_space.sample() if rng.random() < noise else done[-1]
        obs, _, terminated, truncated, _ = env.step(taken)
        if terminated or truncated:
            obs, _ = env.reset()
    return {"obs": np.stack(seen), "actions": np.stack(done)}


def torch_step(
    policy: rlcatalog.Policy, lr: float
) -> Callable[[dict[str, Array]], float]:
    """Return a function that makes the actions in a minibatch more likely and returns
    the loss.
    """
    import torch

    optimizer = torch.optim.Adam(policy.model.parameters(), lr)

    def step(batch: dict[str, Array]) -> float:
        loss = -policy.evaluate(batch).logp.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def tf_step(policy: rlcatalog.Policy, lr: float) -> Callable[[dict[str, Array]], float]:
    """Return the same function in TensorFlow."""
    from rlcatalog_tf import tf

    weights = policy.model.trainable_variables()
    optimizer = tf.keras.optimizers.Adam(lr)

    @tf.function
    def traced(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(policy.evaluate(batch).logp)
        gradients = tape.gradient(loss, weights)
        pairs = []
        for gradient, weight in zip(gradients, weights, strict=True):
            if gradient is not None:  # the value's weights have none
                pairs.append((gradient, weight))
        optimizer.apply_gradients(pairs)
        return loss

    def update(batch: dict[str, Any]) -> float:
        tensors = {name: tf.constant(array) for name, array in batch.items()}
        return float(traced(tensors))

    return update


def clone(
    env: gym.Env,
    data: dict[str, Any],
    model: dict[str, Any],
    framework: str,
    updates: int,
    seed: int = 0,
    lr: float = 1e-3,
    rows: int = 128,
) -> rlcatalog.Policy:
    """Return a policy that has learned only from records.

    Args:
        env: The environment, which only provides the spaces.
        data: Observations and actions of the environment, as `record` returns them.
        model: The model config.
        framework: `"torch"` or `"tf"`.
        updates: Number of minibatches.
        seed: Seed for the weights and the minibatches.
        lr: Learning rate.
        rows: Number of rows in a minibatch.
    """
    seed_all(framework, seed)
    policy = rlcatalog.build(env=env, config=model, framework=framework)
    columns = {
        "obs": policy.preprocess(data["obs"]),
        "raw_action": policy.raw_action(data["actions"]),
    }
    step = (torch_step if framework == "torch" else tf_step)(policy, lr)
    rng = np.random.default_rng(seed)
    for number in range(1, updates + 1):
        drawn = rng.integers(len(columns["obs"]), size=rows)
        loss = step({name: column[drawn] for name, column in columns.items()})
        if number % max(updates // 5, 1) == 0:
            print(f"{number:6d} updates, loss {loss:.3f}")
    return policy


def seed_all(framework: str, seed: int) -> None:
    """Seed the initial weights."""
    if framework == "torch":
        import torch

        torch.manual_seed(seed)
    else:
        from rlcatalog_tf import tf

        tf.keras.utils.set_random_seed(seed)


def play(
    env: gym.Env, act: Callable[[Array], Any], episodes: int, seed: int = 10_000
) -> list[float]:
    """Return the episode returns for seeds that are not in the records."""
    returns = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        total = 0.0
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    """Record, learn, and print the mean returns of the expert and its clone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1", choices=sorted(EXPERTS))
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=10_000, help="steps of the expert to record"
    )
    parser.add_argument("--updates", type=int, default=3_000)
    parser.add_argument(
        "--episodes", type=int, default=20, help="number of episodes to play at the end"
    )
    arguments = parser.parse_args()
    env = gym.make(arguments.env)
    expert = EXPERTS[arguments.env]
    data = record(env, expert, arguments.steps, arguments.seed)
    policy = clone(
        env,
        data,
        MODEL[arguments.env],
        arguments.framework,
        arguments.updates,
        arguments.seed,
    )
    print(
        "the expert's mean return:"
        f" {np.mean(play(env, expert, arguments.episodes)):.1f}"
    )
    returns = play(
        env, lambda obs: policy.act([obs], explore=False).action[0], arguments.episodes
    )
    print(
        f"mean return over {len(returns)} episodes: {np.mean(returns):.1f} (lowest"
        f" {np.min(returns):.0f})"
    )


if __name__ == "__main__":
    main()
