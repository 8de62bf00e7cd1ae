"""Checks for a checkpoint's training state, because checkpoint files are not trusted.

`TrainingState` declares names and types. `check_generators` rejects generator states that would
make NumPy read out of bounds. `check_like` checks that arrays match those of the algorithm that
resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import ResumeWarning, shown
from rlcatalog.reporting import warn_caller
from rlcatalog_policy import Frozen
from rlcatalog_ppo.trees import Array, take_apart

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]

#: NumPy generators that do not check the position in their state → key and maximum of this
#: position.
_POSITIONS = {"MT19937": ("state", "pos", 624), "Philox": (None, "buffer_pos", 4)}


class Randomness(msgspec.Struct):
    """States of a process's random generators (see `evaluation.get_state`)."""

    python: tuple[int, tuple[int, ...], float | None]
    numpy: tuple[Literal["MT19937"], np.ndarray, int, int, float]
    policy: dict[str, np.ndarray]


class Adam(msgspec.Struct):
    """An optimiser's state (see `rlcatalog.frameworks.Learner.get_state`)."""

    step: _Count
    first: dict[str, np.ndarray]
    second: dict[str, np.ndarray]
    behind: dict[str, _Count]


class Learned(msgspec.Struct):
    """A learner's state without the weights (see `RolloutLearner.get_state`)."""

    kl_coeff: _NotNegative
    optimizer: Adam


class Episodes(msgspec.Struct):
    """The most recent finished episodes (see `episodes.Episodes`)."""

    returns: Annotated[list[float], msgspec.Meta(max_length=100)]
    lengths: Annotated[list[int], msgspec.Meta(max_length=100)]
    total: _Count


class Remembered(msgspec.Struct):
    """The policy's memory of the episodes in progress (see `rlcatalog_policy.State`)."""

    memory: tuple[Any, ...]
    windows: dict[str, Any]
    t: np.ndarray
    seen: dict[str, Any]
    past: tuple[Any, ...]


class Collected(msgspec.Struct):
    """A collector's state (see `Collector.get_state`); its arrays are compared with a new
    collector's.
    """

    episodes: Episodes
    state: Remembered | None
    scale: dict[str, np.ndarray] | None = None


class Place(msgspec.Struct):
    """An environment's state (see `Resumable.where`); if it cannot be restored, a new episode
    begins.
    """

    generator: dict[str, Any]


class Settings(msgspec.Struct):
    """Keys in an algorithm's config that are read before parsing."""

    num_envs: int
    env_config: dict[str, Any]


class TrainingState(msgspec.Struct, kw_only=True):
    """An algorithm's state (see `OnPolicy.state`)."""

    algorithm: str
    env: str | None
    config: Settings
    steps: _Count
    iterations: _Count
    seconds: _NotNegative
    generator: dict[str, Any]
    randomness: Randomness
    learner: Learned
    collector: Collected
    environments: list[Place]
    frozen: bool | None = None
    recorded: _Count | None = None
    callbacks: dict[str, Any]


def numbers_of(policy: Policy) -> dict[str, Any]:
    """Return copies of a policy's weights and of its filter's statistics."""
    weights = {name: array.copy() for name, array in policy.model.get_weights().items()}
    return {
        "weights": weights,
        "filter": None if policy.filter is None else deepcopy(policy.filter.saved_state()),
    }


def check_state(state: Any) -> None:
    """Raise an error unless a structure is an algorithm's state.

    Args:
        state: The result of `trees.put_together`.

    Raises:
        ValueError: They differ. The message names the difference.
    """
    checked = msgspec.convert(state, TrainingState)
    wanted, count = checked.config.num_envs, len(checked.environments)
    if wanted != count:  # check this first, because that many environments are created
        raise ValueError(
            f"its config has num_envs={wanted}, but it contains the states of {count} environments"
        )
    check_generators(state)


def check_fits(state: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error unless the arrays in a state match an algorithm.

    Args:
        state: The state.
        now: The state of the new algorithm, which will resume from `state`.

    Raises:
        ValueError: They differ. The message names the arrays.
    """
    kept, trained = (set(one["learner"]["optimizer"]["first"]) for one in (state, now))
    if others := sorted(kept ^ trained):
        raise ValueError(
            f"weights that are trained here were frozen there, or vice versa: {', '.join(others)}."
            " Freeze the same ones"
        )
    for name in ("first", "second"):
        check_like(
            state["learner"]["optimizer"][name],
            now["learner"]["optimizer"][name],
            f"learner/optimizer/{name}",
        )
    collected, new = state["collector"], now["collector"]
    arrays = new.keys() & collected.keys() - {"episodes", "scale", "state"}
    if collected.get("mask") is None and new.get("mask") is not None:
        arrays -= {"mask"}  # written before masks in infos were read
    for name in arrays:
        check_like(collected[name], new[name], f"collector/{name}")
    if collected.get("scale") is not None and new["scale"] is not None:
        check_like(collected["scale"], new["scale"], "collector/scale")
    if new["state"] is not None:
        for name in ("memory", "windows", "t", "past"):
            check_like(collected["state"][name], new["state"][name], f"collector/state/{name}")
        seen, count = collected["state"]["seen"], len(new["returns"])
        arrays = seen.values() if isinstance(seen, Mapping) else [seen]
        if any(np.shape(array)[:1] != (count,) for array in arrays):
            raise ValueError(
                f"collector/state/seen: expected arrays of {count} rows, found {shown(seen)}"
            )


def warn_of_other_draws(state: Mapping[str, Any], acting: Policy | Frozen) -> None:
    """Warn if a frozen policy drew the actions, but the policy cannot be frozen here.

    Args:
        state: The state that the run resumes from.
        acting: The policy that collects rollouts now.
    """
    lost = state["randomness"]["policy"].keys() - acting.random_state().keys()
    if lost and isinstance(acting, Frozen):
        warn_caller(
            "the run used a frozen policy to collect, which is not possible here:"
            f" {acting.reason}. It continues with the policy itself, which draws different"
            " actions.",
            ResumeWarning,
        )


def warn_of_new_episodes(reasons: Mapping[int, str], count: int) -> None:
    """Warn about environments whose episodes cannot be resumed.

    Args:
        reasons: The reason for each such environment, by index; at least one.
        count: Total number of environments.
    """
    place, why = next(iter(reasons.items()))
    warn_caller(
        f"{len(reasons)} of {count} environments cannot resume their episodes and begin new ones."
        f" The run differs from an uninterrupted one. Environment {place}: {why}. Give the"
        " environment get_state() and set_state(state) to resume exactly.",
        ResumeWarning,
    )


def warn_of_unsaved_episodes(places: Sequence[Mapping[str, Any]]) -> None:
    """Warn about environments whose episodes a run cannot resume from a checkpoint.

    Args:
        places: The state of each environment (see `Resumable.where`), by index.
    """
    reasons = {i: place["why"] for i, place in enumerate(places) if "why" in place}
    if not reasons:
        return
    first, why = next(iter(reasons.items()))
    warn_caller(
        f"{len(reasons)} of {len(places)} environments will begin new episodes when a run resumes"
        f" from this checkpoint. Environment {first}: {why}. Give the environment get_state() and"
        " set_state(state) to resume exactly.",
        ResumeWarning,
    )


def check_generators(tree: Any) -> None:
    """Raise an error if a structure contains the state of a NumPy generator whose position is out
    of bounds.

    NumPy accepts such a state, and the next draw then crashes the process.

    Raises:
        ValueError: A position is out of bounds.
    """
    if isinstance(tree, Mapping):
        name = tree.get("bit_generator")
        if isinstance(name, str) and name in _POSITIONS:
            inside, key, most = _POSITIONS[name]
            held = tree if inside is None else tree.get(inside)
            _check_position(name, held.get(key) if isinstance(held, Mapping) else None, most)
        for part in tree.values():
            check_generators(part)
    elif isinstance(tree, list | tuple):
        # State of `np.random.RandomState`.
        if len(tree) > 2 and isinstance(tree[0], str) and tree[0] in _POSITIONS:
            _check_position(tree[0], tree[2], _POSITIONS[tree[0]][2])
        for part in tree:
            check_generators(part)


def _check_position(name: str, position: Any, most: int) -> None:
    if type(position) is not int or not 0 <= position <= most:
        raise ValueError(
            f"the position of a generator {name} is {shown(position)}; expected 0 to {most}"
        )


def check_like(value: Any, like: Any, place: str) -> None:
    """Raise an error unless two structures of arrays have the same names, lengths, shapes and dtype
    kinds.

    Args:
        value: The structure.
        like: The expected structure.
        place: Path of the structure, for error messages.

    Raises:
        ValueError: They differ.
    """
    arrays, wanted = dict[str, Array](), dict[str, Array]()
    structure, expected = take_apart(value, arrays, place), take_apart(like, wanted, place)
    if structure != expected:
        raise ValueError(f"{place}: expected {shown(expected)}, found {shown(structure)}")
    for name, array in wanted.items():
        found = arrays[name]
        if (found.shape, found.dtype.kind) != (array.shape, array.dtype.kind):
            raise ValueError(
                f"{name}: expected {array.dtype} {list(array.shape)}, found {found.dtype}"
                f" {list(found.shape)}"
            )
