"""Checks for a checkpoint's training state, because checkpoint files are not trusted.

`TrainingState` declares names and types. `check_generators` rejects generator states that would
make NumPy read out of bounds. `check_like` checks that arrays match those of the algorithm that
resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import ResumeWarning, shown
from rlcatalog.reporting import warn_caller
from rlcatalog_policy import Frozen
from rlcatalog_ppo.trees import Array, take_apart

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class _Position(NamedTuple):
    """Position in a generator's buffer, which is part of the generator's state.

    Attributes:
        key: Key of the position.
        key_of_dict: Key of the dict in the state that holds the position; None for the state
            itself.
        largest: Largest valid position.
    """

    key: str
    key_of_dict: str | None
    largest: int


#: The position in the states of those NumPy generators that do not check it.
_POSITIONS = {
    "MT19937": _Position("pos", key_of_dict="state", largest=624),
    "Philox": _Position("buffer_pos", key_of_dict=None, largest=4),
}


class RandomState(msgspec.Struct):
    """States of a process's random generators (see `evaluation.get_random_state`)."""

    python: tuple[int, tuple[int, ...], float | None]
    numpy: tuple[Literal["MT19937"], np.ndarray, int, int, float]
    policy: dict[str, np.ndarray]


class AdamState(msgspec.Struct):
    """An optimiser's state (see `rlcatalog.frameworks.Learner.get_state`)."""

    step: _Count
    first: dict[str, np.ndarray]
    second: dict[str, np.ndarray]
    behind: dict[str, _Count]


class LearnerState(msgspec.Struct):
    """A learner's state without the weights (see `RolloutLearner.get_state`)."""

    kl_coeff: _NotNegative
    optimizer: AdamState


class EpisodesState(msgspec.Struct):
    """The most recent finished episodes (see `episodes.Episodes`)."""

    returns: Annotated[list[float], msgspec.Meta(max_length=100)]
    lengths: Annotated[list[int], msgspec.Meta(max_length=100)]
    total: _Count


class PolicyMemory(msgspec.Struct):
    """The policy's memory of the episodes in progress (see `rlcatalog_policy.State`)."""

    memory: tuple[Any, ...]
    windows: dict[str, Any]
    t: np.ndarray
    seen: dict[str, Any]
    past: tuple[Any, ...]


class CollectorState(msgspec.Struct):
    """A collector's state (see `Collector.get_state`); its arrays are compared with a new
    collector's.
    """

    episodes: EpisodesState
    state: PolicyMemory | None
    scale: dict[str, np.ndarray] | None = None


class EnvState(msgspec.Struct):
    """An environment's state (see `Resumable.resume_state`).

    If its other entries cannot be restored, a new episode begins.
    """

    generator: dict[str, Any]


class ConfigKeys(msgspec.Struct):
    """Keys in an algorithm's config that are read before parsing."""

    num_envs: int
    env_config: dict[str, Any]


class TrainingState(msgspec.Struct, kw_only=True):
    """An algorithm's state (see `OnPolicy.state`)."""

    algorithm: str
    env: str | None
    config: ConfigKeys
    steps: _Count
    iterations: _Count
    seconds: _NotNegative
    generator: dict[str, Any]
    randomness: RandomState
    learner: LearnerState
    collector: CollectorState
    environments: list[EnvState]
    frozen: bool | None = None
    recorded: _Count | None = None
    callbacks: dict[str, Any]


def weights_and_filter(policy: Policy) -> dict[str, Any]:
    """Return copies of a policy's weights and of its filter's statistics."""
    weights = {name: array.copy() for name, array in policy.model.get_weights().items()}
    filter_state = None
    if policy.filter is not None:
        filter_state = deepcopy(policy.filter.saved_state())
    return {"weights": weights, "filter": filter_state}


def check_state(state: Any) -> None:
    """Raise an error unless a structure is an algorithm's state.

    Args:
        state: The result of `trees.put_together`.

    Raises:
        ValueError: They differ. The message names the difference.
    """
    training_state = msgspec.convert(state, TrainingState)
    num_envs = training_state.config.num_envs
    num_states = len(training_state.environments)
    if num_envs != num_states:  # check this first, because that many environments are created
        raise ValueError(
            f"its config has num_envs={num_envs}, but it contains the states of {num_states}"
            " environments"
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
    _check_optimizer_fits(state["learner"]["optimizer"], now["learner"]["optimizer"])
    _check_collector_fits(state["collector"], now["collector"])


def _check_optimizer_fits(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error unless an optimizer's saved state is for the weights that are trained now."""
    # Adam's first and second moments have an entry for each trained weight.
    trained_only_once = saved["first"].keys() ^ now["first"].keys()
    if trained_only_once:
        raise ValueError(
            "weights that are trained here were frozen there, or vice versa:"
            f" {', '.join(sorted(trained_only_once))}. Freeze the same ones"
        )
    for moment in ("first", "second"):
        check_like(saved[moment], now[moment], f"learner/optimizer/{moment}")


def _check_collector_fits(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error unless a collector's saved arrays are like those of the new collector."""
    array_names = now.keys() & saved.keys() - {
        "episodes",
        "scale",
        "state",
    }  # not arrays; see below
    if saved.get("mask") is None and now.get("mask") is not None:
        array_names -= {"mask"}  # written before masks in infos were read
    for name in array_names:
        check_like(saved[name], now[name], f"collector/{name}")
    if saved.get("scale") is not None and now["scale"] is not None:
        check_like(saved["scale"], now["scale"], "collector/scale")
    policy_state = now["state"]
    if policy_state is not None:
        for name in ("memory", "windows", "t", "past"):
            check_like(saved["state"][name], policy_state[name], f"collector/state/{name}")
        num_envs = len(now["returns"])
        _check_rows(saved["state"]["seen"], num_rows=num_envs)


def _check_rows(seen: Any, *, num_rows: int) -> None:
    """Raise an error unless the model's last inputs have a row for each environment."""
    arrays = seen.values() if isinstance(seen, Mapping) else [seen]
    for array in arrays:
        if np.shape(array)[:1] != (num_rows,):
            raise ValueError(
                f"collector/state/seen: expected arrays of {num_rows} rows, found {shown(seen)}"
            )


def warn_of_other_draws(state: Mapping[str, Any], acting: Policy | Frozen) -> None:
    """Warn if a frozen policy drew the actions, but the policy cannot be frozen here.

    Args:
        state: The state that the run resumes from.
        acting: The policy that collects rollouts now.
    """
    # A frozen policy has a generator that the policy itself lacks.
    generators = state["randomness"]["policy"].keys()
    generators_missing_here = generators - acting.random_state().keys()
    if generators_missing_here and isinstance(acting, Frozen):
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
    env, why = next(iter(reasons.items()))
    warn_caller(
        f"{len(reasons)} of {count} environments cannot resume their episodes and begin new ones."
        f" The run differs from an uninterrupted one. Environment {env}: {why}. Give the"
        " environment get_state() and set_state(state) to resume exactly.",
        ResumeWarning,
    )


def warn_of_unsaved_episodes(env_states: Sequence[Mapping[str, Any]]) -> None:
    """Warn about environments whose episodes a run cannot resume from a checkpoint.

    Args:
        env_states: The state of each environment (see `Resumable.resume_state`), by index.
    """
    # A state has the entry "why" if it cannot be restored.
    reasons = {env: state["why"] for env, state in enumerate(env_states) if "why" in state}
    if not reasons:
        return
    first_env, why = next(iter(reasons.items()))  # the message explains one of them
    warn_caller(
        f"{len(reasons)} of {len(env_states)} environments will begin new episodes when a run"
        f" resumes from this checkpoint. Environment {first_env}: {why}. Give the environment"
        " get_state() and set_state(state) to resume exactly.",
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
        name = tree.get("bit_generator")  # in the state of a NumPy BitGenerator
        if isinstance(name, str) and name in _POSITIONS:
            _check_position_in_dict(name, tree)
        for part in tree.values():
            check_generators(part)
    elif isinstance(tree, list | tuple):
        if len(tree) > 2 and isinstance(tree[0], str) and tree[0] in _POSITIONS:
            # It is the state of a `np.random.RandomState`: (name, key, position, …).
            name, _, position, *_ = tree
            _check_position(name, position)
        for part in tree:
            check_generators(part)


def _check_position_in_dict(name: str, state: Mapping[str, Any]) -> None:
    """Check the position in the state of a `np.random.BitGenerator` with this name."""
    position = _POSITIONS[name]
    holder: Any = state
    if position.key_of_dict is not None:
        holder = state.get(position.key_of_dict)
    value = holder.get(position.key) if isinstance(holder, Mapping) else None
    _check_position(name, value)


def _check_position(name: str, value: Any) -> None:
    largest = _POSITIONS[name].largest
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(
            f"the position of a generator {name} is {shown(value)}; expected 0 to {largest}"
        )


def check_like(value: Any, like: Any, path: str) -> None:
    """Raise an error unless two structures of arrays have the same names, lengths, shapes and dtype
    kinds.

    Args:
        value: The structure.
        like: The expected structure.
        path: Path of the structure, for error messages.

    Raises:
        ValueError: They differ.
    """
    arrays: dict[str, Array] = {}
    expected_arrays: dict[str, Array] = {}
    structure = take_apart(value, arrays, path)  # which adds to `arrays`
    expected_structure = take_apart(like, expected_arrays, path)
    if structure != expected_structure:
        raise ValueError(f"{path}: expected {shown(expected_structure)}, found {shown(structure)}")
    for name, expected in expected_arrays.items():
        array = arrays[name]
        has_same_kind = array.dtype.kind == expected.dtype.kind  # any precision
        if array.shape != expected.shape or not has_same_kind:
            raise ValueError(
                f"{name}: expected {expected.dtype} {list(expected.shape)}, found {array.dtype}"
                f" {list(array.shape)}"
            )
