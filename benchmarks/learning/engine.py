"""What all engines share: the result of training, the evaluation after it, and the catalog's config
of each task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.learning.task import Task

#: Episodes a trained policy plays.
EPISODES = 50
#: Points of a curve that are noted while training.
NOTED = 500
#: What normalised observations and rewards are clipped at, in all engines.
CLIP = 10.0

#: Environment steps, and the mean return of the last 100 episodes then.
Curve = list[tuple[int, float]]
#: `act(obs, state, env, explore)` returns an action and the next state; the state is None where an
#: episode begins.
Act = Callable[[Any, Any, Any, bool], tuple[Any, Any]]


@dataclass
class Trained:
    """Result of training.

    Attributes:
        act: Acts as the trained policy does.
        curve: Returns in training.
        parameters: Number of trained weights; None where they are not counted.
        seconds: CPU seconds of training alone: no imports, no evaluation.
        policy: The policy of rlcatalog-ppo, for keeping; None for other engines.
    """

    act: Act
    curve: Curve = field(default_factory=list)
    parameters: int | None = None
    seconds: float = 0.0
    policy: Any = None


@contextmanager
def timed(trained: Trained) -> Iterator[None]:
    """Note the CPU seconds of the block."""
    began = time.process_time()
    yield
    trained.seconds = time.process_time() - began


def note(curve: Curve, steps: int, total: int, mean: float | None) -> None:
    """Add a point to a curve, unless the last one is near or no episode has ended."""
    if (
        mean is not None
        and np.isfinite(mean)
        and (not curve or steps - curve[-1][0] >= total / NOTED)
    ):
        curve.append((steps, float(mean)))


def play(env: Any, act: Act, seed: int, explore: bool) -> float:
    """Return the mean return of `EPISODES` episodes."""
    returns = []
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=seed + 1000 * episode)
        state, total, over = None, 0.0, False
        while not over:
            action, state = act(obs, state, env, explore)
            obs, reward, ended, cut, _ = env.step(action)
            total, over = total + float(reward), ended or cut
        returns.append(total)
    return float(np.mean(returns))


def model_config(task: Task, engine: str, net: str, space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the catalog's model config: the task's, or layers as wide as those of the engine's own
    nets.
    """
    given = task.given
    if "model" in given:
        config = dict(given["model" if net == "catalog" else net])
    elif len(space.shape or ()) == 3:
        config = {"conv_filters": "nature"}
    else:
        width = 256 if engine == "rllib" else 64
        config = {"fcnet_hiddens": [width, width]}
    if task.kept_defaults:
        config = {**first_defaults(engine, space), **config}
    return config


def first_defaults(engine: str, space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the defaults that the catalog's nets were trained with when results were first kept.

    They have changed since. RLlib scales actions itself, and its bridge starts nets as then.
    """
    config: dict[str, Any] = {"scale_integers": False}
    if sees_images(space):
        config["image_layout"] = "hwc"
    if engine != "rllib":
        config |= {
            "action_bounds": "clip",
            "init": "normc",
            "memory_first": False,
            "lstm_two_biases": False,
        }
    return config


def sees_images(space: spaces.Space[Any]) -> bool:
    """Return whether an observation is an image or, in a Dict, contains one."""
    leaves = space.values() if isinstance(space, spaces.Dict) else [space]
    return any(len(leaf.shape or ()) == 3 for leaf in leaves)


def set_log_std(model: Any, value: float) -> None:
    """Set the log standard deviations of a catalog model, which do not depend on the
    observation.
    """
    weights = model.get_weights()
    (name,) = [name for name in weights if name.endswith("log_std")]
    model.set_weights({**weights, name: np.full_like(weights[name], value)})
