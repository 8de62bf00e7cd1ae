"""Soft actor-critic in one file, with models from the catalog; PyTorch or TensorFlow.

The catalog provides the preprocessor, the actor's network with its squashed Gaussian,
and the critics' networks with additional methods (`model_interface=`, see
`model_apis`). This file contains the replay buffer, the losses, the temperature and the
training loop.

It supports continuous actions, and models without a memory, including your own. Run it
with `python examples/sac.py --env Pendulum-v1 --framework tf --seed 1`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rlcatalog import ModelCatalog

#: The config of the actor, and of the critics. A critic has one network for the
#: observation, and a second one for its features and the action; the interface builds
#: the second from the same keys.
MODEL = {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"}
Q_MODEL = {"fcnet_hiddens": [128], "fcnet_activation": "relu"}


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

    actor: Any
    dist_class: Any
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
        from model_apis.torch import TorchContActionQModel as ContActionQModel

        torch.manual_seed(seed)
    else:
        from model_apis.tf import ContActionQModel

        from rlcatalog_tf import tf

        tf.keras.utils.set_random_seed(seed)
    dist_class, size = ModelCatalog.get_action_dist(
        action_space, model, "squashed_gaussian", framework
    )
    actor = ModelCatalog.get_model_v2(
        obs_space, action_space, size, model, framework, "actor"
    )

    def critic_of(name: str) -> Any:
        return ModelCatalog.get_model_v2(
            obs_space,
            action_space,
            num_outputs=None,
            model_config=q_model,
            framework=framework,
            name=name,
            model_interface=ContActionQModel,
        )

    critics = [critic_of("q"), critic_of("twin_q")]
    targets = [critic_of("target_q"), critic_of("target_twin_q")]
    for critic, target in zip(critics, targets, strict=True):
        target.set_weights(critic.get_weights())
    if any(net.get_initial_state() for net in (actor, *critics)):
        raise ValueError(
            "This example replays single steps; a model with memory needs sequences."
        )
    return Nets(actor, dist_class, critics, targets)


# --- in each framework: acting, and one training step ---------------------------------


def torch_learner(
    nets: Nets, target_entropy: float, hyper: Hyper
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions `act(obs, explore) -> [B, ...]` and `update(batch)`."""
    import torch
    from torch.nn.functional import mse_loss

    actor, dist_class, critics, targets = nets
    log_alpha = torch.zeros((), requires_grad=True)
    q_weights = [p for critic in critics for p in critic.parameters()]
    target_weights = [p for target in targets for p in target.parameters()]
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=hyper.lr, fused=True)
    q_optimizer = torch.optim.Adam(q_weights, lr=hyper.lr, fused=True)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=hyper.lr)

    def policy(obs: torch.Tensor) -> Any:
        out, _ = actor({"obs": obs})
        return dist_class(out, actor)

    def q_of(net: Any, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        out, _ = net({"obs": obs})
        return net.get_single_q_value(out, action).squeeze(1)

    def smaller_q(
        pair: list[Any], obs: torch.Tensor, action: torch.Tensor
    ) -> torch.Tensor:
        return torch.minimum(*(q_of(net, obs, action) for net in pair))

    @torch.inference_mode()
    def act(obs: np.ndarray, explore: bool) -> np.ndarray:
        dist = policy(torch.from_numpy(obs))
        return (dist.sample() if explore else dist.deterministic_sample()).numpy()

    def update(batch: Batch) -> None:
        b = Batch(*map(torch.from_numpy, batch))
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            dist = policy(b.next_obs)
            action = dist.sample()
            following = smaller_q(targets, b.next_obs, action) - alpha * dist.logp(
                action
            )
            goal = b.reward + hyper.gamma * (1 - b.terminal) * following
        q_loss = sum(
            mse_loss(q_of(critic, b.obs, b.action), goal) for critic in critics
        )
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        dist = policy(b.obs)
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

    return act, update


def tf_learner(
    nets: Nets, target_entropy: float, hyper: Hyper
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the traced functions `act(obs, explore) -> [B, ...]` and
    `update(batch)`.
    """
    from rlcatalog_tf import tf

    actor, dist_class, critics, targets = nets
    log_alpha = tf.Variable(0.0)
    actor_weights = actor.trainable_variables()
    q_weights = [v for critic in critics for v in critic.trainable_variables()]
    target_weights = [v for target in targets for v in target.trainable_variables()]
    optimizers = [tf.keras.optimizers.Adam(hyper.lr) for _ in range(3)]
    for optimizer, weights in zip(
        optimizers, (actor_weights, q_weights, [log_alpha]), strict=True
    ):
        optimizer.build(weights)
    actor_optimizer, q_optimizer, alpha_optimizer = optimizers
    any_obs = tf.TensorSpec([None, *actor.obs_space.shape], actor.obs_space.dtype)

    def policy(obs: Any) -> Any:
        out, _ = actor({"obs": obs})
        return dist_class(out, actor)

    def q_of(net: Any, obs: Any, action: Any) -> Any:
        out, _ = net({"obs": obs})
        return tf.squeeze(net.get_single_q_value(out, action), axis=1)

    def smaller_q(pair: list[Any], obs: Any, action: Any) -> Any:
        return tf.minimum(*(q_of(net, obs, action) for net in pair))

    explored = tf.function(lambda obs: policy(obs).sample(), input_signature=[any_obs])
    likeliest = tf.function(
        lambda obs: policy(obs).deterministic_sample(), input_signature=[any_obs]
    )

    @tf.function
    def step(b: Batch) -> None:
        alpha = tf.exp(log_alpha)
        dist = policy(b.next_obs)
        action = dist.sample()
        following = smaller_q(targets, b.next_obs, action) - alpha * dist.logp(action)
        goal = b.reward + hyper.gamma * (1 - b.terminal) * following
        with tf.GradientTape() as tape:
            losses = [
                tf.reduce_mean(tf.square(q_of(critic, b.obs, b.action) - goal))
                for critic in critics
            ]
            q_loss = tf.add_n(losses)
        q_optimizer.apply(tape.gradient(q_loss, q_weights), q_weights)

        with tf.GradientTape() as tape:
            dist = policy(b.obs)
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

    def act(obs: np.ndarray, explore: bool) -> np.ndarray:
        return (explored if explore else likeliest)(obs).numpy()

    def update(batch: Batch) -> None:
        step(Batch(*map(tf.constant, batch)))

    return act, update


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
    preprocessor = ModelCatalog.get_preprocessor(played, model)
    obs_space = preprocessor.observation_space
    encode = preprocessor.transform
    nets = build(obs_space, action_space, framework, model, q_model, seed)
    # The usual target is -1 per action between -1 and 1; in wider bounds the same
    # spread has more entropy.
    target_entropy = float(
        np.sum(np.log((action_space.high - action_space.low) / 2) - 1)
    )
    make_learner = torch_learner if framework == "torch" else tf_learner
    act, update = make_learner(nets, target_entropy, hyper)
    replay = Replay(hyper.buffer_size, obs_space, action_space)

    obs = encode(played.reset(seed=seed)[0])
    returns = []
    running = 0.0
    begin = time.perf_counter()
    for t in range(hyper.steps):
        if t < hyper.learning_starts:
            action = action_space.sample()
        else:
            action = act(obs[None], explore=True)[0]
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
        lambda shown: act(encode(shown)[None], explore=False)[0],
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
