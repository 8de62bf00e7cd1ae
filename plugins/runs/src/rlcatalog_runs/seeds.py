"""Seeds of a run: every random generator gets its own, derived from the run's one seed.

This module is the only place that knows the order of the streams. Seeds such as `seed + i` for
environment `i` would give runs with the seeds 0 and 1 almost the same episodes, so the seeds come
from NumPy's `SeedSequence`, whose children are independent.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from rlcatalog.errors import ConfigError, shown
from rlcatalog.spaces import read_attribute


class SeedStream(IntEnum):
    """Streams of seeds, in the order in which `SeedSequence` spawns them.

    A stream's place decides all of its seeds, so a new stream goes to the end.
    """

    #: Child `i` seeds the first reset of training environment `i`.
    ENVIRONMENTS = 0
    #: Child `i` seeds the first reset of environment `i` of an evaluation.
    EVALUATION = 1
    #: Child 0 seeds the order of the rows in minibatches.
    SHUFFLING = 2
    #: Child 0 seeds the framework: initial weights and sampled actions.
    FRAMEWORK = 3
    #: Child 0 seeds the sampled actions of a frozen policy.
    FROZEN = 4
    #: Child `n` is the one seed for another engine, in a run that starts or resumes at step `n`.
    ENGINE = 5


def derive_seed(seed: int | None, stream: SeedStream, child: int = 0) -> int | None:
    """Return a seed below 2**31, or None for a run without a seed.

    The seed is `SeedSequence(seed).spawn(stream + 1)[stream].spawn(child + 1)[child]`, reduced to
    31 bits. It does not depend on the number of children in use.

    Args:
        seed: The run's seed.
        stream: The stream.
        child: The child of the stream.

    Raises:
        ConfigError: The run's seed is not a nonnegative integer.

    Example:
        >>> derive_seed(0, SeedStream.ENVIRONMENTS), derive_seed(1, SeedStream.ENVIRONMENTS)
        (2044266242, 1511999270)
        >>> derive_seed(None, SeedStream.ENVIRONMENTS) is None
        True
    """
    return None if seed is None else _child_seed(seed, stream, child)


def derive_env_seeds(
    seed: int | None, stream: SeedStream, envs: VectorEnv[Any, Any, Any]
) -> list[int] | int | None:
    """Return what to pass to a vector environment as `reset(seed=)`.

    Args:
        seed: The run's seed.
        stream: The stream.
        envs: The vector environment.

    Returns:
        One seed for each environment, for Gymnasium's vector environments. Any other class may
        accept a single seed only, so it gets the first one, from which it seeds its environments
        in its own way. None for a run without a seed, and for environments that take a seed only
        when they are made, which is then in their metadata.

    Raises:
        ConfigError: The run's seed is not a nonnegative integer.
    """
    metadata = read_attribute(envs, "metadata") or {}
    if seed is None or "seed" in metadata:
        return None
    if not isinstance(envs.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return _child_seed(seed, stream, child=0)
    return [_child_seed(seed, stream, index) for index in range(envs.num_envs)]


def _child_seed(seed: int, stream: SeedStream, child: int) -> int:
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(
            f"seed: expected an integer of at least 0, or None; found {shown(seed)}. Pass another"
            " seed, such as seed=0."
        )
    # The same as spawning, without creating the children before this one.
    sequence = np.random.SeedSequence(int(seed), spawn_key=(stream, child))
    [number] = sequence.generate_state(1, np.uint32)
    return int(number) >> 1  # environments written in C may keep their seed in a signed int
