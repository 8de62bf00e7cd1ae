"""Policy evaluation over episodes that does not change the process's random state."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlcatalog import Policy
from rlcatalog.catalog import close_env, count_envs
from rlcatalog_policy import EnvMasks, Frozen
from rlcatalog_runs.seeds import SeedStream, derive_env_seeds

#: Maximum number of environments that are stepped together.
MOST_ENVS_AT_ONCE = 20


class EpisodeResult(NamedTuple):
    """Result of an episode.

    Attributes:
        episode_return: Undiscounted sum of the rewards.
        length: Number of steps.
    """

    episode_return: float
    length: int


def play(
    policy: Policy,
    env: Callable[[], Any] | VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    seed: int | None = None,
    explore: bool = False,
) -> list[float]:
    """Play new episodes, and return their undiscounted returns; see `play_episodes`."""
    results = play_episodes(policy, env, episodes, seed=seed, explore=explore)
    return [result.episode_return for result in results]


def play_episodes(
    policy: Policy,
    env: Callable[[], Any] | VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    seed: int | None = None,
    explore: bool = False,
    on_episode: Callable[[EpisodeResult], None] | None = None,
) -> list[EpisodeResult]:
    """Play new episodes, and return their results.

    Each environment plays a fixed share of the episodes, because counting the first episodes to
    finish would favor short ones.

    Action masks are read from the observations, the infos and `action_masks()`; see
    `rlcatalog_policy.EnvMasks`.

    Args:
        policy: The policy.
        env: Function that creates one environment or a vector environment; or a vector environment,
            which is reset and left open.
        episodes: Number of episodes.
        seed: Seed from which those of the environments are derived, in the stream for evaluations.
            None for random episodes.
        explore: Whether to sample actions instead of taking the deterministic ones.
        on_episode: Function that is called with the result of each episode when it ends.
    """
    if isinstance(env, VectorEnv):
        return _play_side_by_side(policy, env, episodes, seed, explore, on_episode)
    first_env = env()
    if count_envs(first_env) is None:
        others = [env] * (min(episodes, MOST_ENVS_AT_ONCE) - 1)
        makers: list[Callable[[], Any]] = [partial(_give, first_env), *others]
        envs: Any = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    else:
        envs = first_env  # the function makes a vector environment
    try:
        return _play_side_by_side(policy, envs, episodes, seed, explore, on_episode)
    finally:
        close_env(envs)


def _give(env: Any) -> Any:
    """Return an environment that exists already, in place of a function that makes one."""
    return env


def _play_side_by_side(
    policy: Policy,
    envs: VectorEnv[Any, Any, Any],
    episodes: int,
    seed: int | None,
    explore: bool,
    on_episode: Callable[[EpisodeResult], None] | None,
) -> list[EpisodeResult]:
    """Play new episodes in a vector environment; the arguments are those of `play_episodes`."""
    num_envs = envs.num_envs
    # If the episodes cannot be divided equally, the first environments play one more.
    has_one_more = np.arange(num_envs) < episodes % num_envs
    episodes_left = np.full(num_envs, episodes // num_envs) + has_one_more
    results: list[EpisodeResult] = []
    returns_in_progress = np.zeros(num_envs)
    lengths_in_progress = np.zeros(num_envs, np.int64)
    stepper = policy.stepper(envs)
    masks = EnvMasks(policy.masks, envs)
    # Any, because Gymnasium accepts a list of seeds but declares an integer only.
    seeds: Any = derive_env_seeds(seed, SeedStream.EVALUATION, envs)
    obs, infos = envs.reset(seed=seeds)
    masks.begin(infos)
    done = None
    reward = None
    while len(results) < episodes:
        step = stepper.step(
            obs, done=done, prev_reward=reward, mask=masks.argument, explore=explore
        )
        obs, reward, terminated, truncated, infos = envs.step(step.action)
        lengths_in_progress += 1
        if stepper.autoreset == "next_step" and done is not None:
            # After the end of an episode, this step only reset the environment.
            reward = np.where(done, 0.0, reward)
            lengths_in_progress[done] = 0
        returns_in_progress += reward
        done = terminated | truncated
        masks.after_step(infos, done)
        for index in np.flatnonzero(done):
            if episodes_left[index] > 0:
                episodes_left[index] -= 1
                episode_return = float(returns_in_progress[index])
                result = EpisodeResult(episode_return, int(lengths_in_progress[index]))
                results.append(result)
                if on_episode is not None:
                    on_episode(result)
            returns_in_progress[index] = 0.0
            lengths_in_progress[index] = 0
        # In mode "disabled", Gymnasium leaves the resets to its caller.
        if stepper.autoreset == "disabled" and done.any():
            obs, infos = envs.reset(options={"reset_mask": done})
            masks.after_reset(infos, done)
    return results


def summarize(returns: list[float], sampled: list[float]) -> dict[str, float]:
    """Return an evaluation's metrics.

    Args:
        returns: Returns of episodes played with deterministic actions.
        sampled: Returns of the same number of episodes played with sampled actions.
    """
    return {
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "sampled_return_mean": statistics.fmean(sampled),
        "episodes": len(returns),
    }


def describe_episodes(results: Sequence[EpisodeResult]) -> dict[str, float]:
    """Return the figures of several episodes: mean, standard deviation and median of the returns,
    the mean length, and the number of episodes.
    """
    returns = [result.episode_return for result in results]
    lengths = [result.length for result in results]
    return {
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "return_median": statistics.median(returns),
        "length_mean": statistics.fmean(lengths),
        "episodes": len(results),
    }


# --- random numbers of the process ----------------------------------------------------------------


def get_random_state(policy: Policy | Frozen) -> dict[str, Any]:
    """Return the random states of Python, NumPy and the policy."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "policy": policy.random_state(),
    }


def set_random_state(policy: Policy | Frozen, state: Mapping[str, Any]) -> None:
    """Restore the states that `get_random_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    policy.set_random_state(state["policy"])


@contextmanager
def keep_random_state(policy: Policy) -> Iterator[None]:
    """Context manager that restores all random generators on exit."""
    state = get_random_state(policy)
    try:
        yield
    finally:
        set_random_state(policy, state)
