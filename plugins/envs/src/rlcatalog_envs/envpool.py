"""Adapter for EnvPool, in its synchronous mode.

EnvPool steps many environments at once in C++. What differs from a vector environment of
Gymnasium, and is settled here:

- The observation space is that of one environment, and some of its bounds are the smallest and the
  largest float in place of no bound.
- The seed belongs to `envpool.make`; `reset(seed=)` would ignore it.
- `reset` with a `reset_mask` returns the selected rows alone.
- The environments reset themselves in the step after an episode's end (NEXT_STEP), so an episode's
  last observation is the one that its last step returns.
- Actions are cast silently, also those that no action space contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlcatalog.errors import ActionError, ConfigError, MissingExtraError, NotServedError, shown
from rlcatalog.frameworks import Array, TensorTree

#: Entries of EnvPool's infos that number the rows. They say nothing new in synchronous mode.
_ROW_NUMBERS = ("env_id", "players")
#: What some of its games call an action mask.
_MASK = "legal_action_mask"
#: EnvPool's package of an environment → the axes of its images.
_LAYOUTS = {
    "envpool.atari": "chw",
    "envpool.procgen": "chw",
    "envpool.vizdoom": "chw",
    "envpool.mujoco": "chw",
    "envpool.box2d": "hwc",
    "envpool.gfootball": "hwc",
    "envpool.minigrid": "hwc",
    "envpool.pgx": "hwc",
}


def make_vec(name: str, num_envs: int, **arguments: Any) -> EnvPoolEnvs:
    """Make environments of EnvPool.

    Args:
        name: EnvPool's name of the environment, such as `"CartPole-v1"`.
        num_envs: Number of environments.
        **arguments: Arguments of `envpool.make`, such as `seed` and `num_threads`.

    Raises:
        MissingExtraError: EnvPool is not installed.
    """
    try:
        import envpool
    except ImportError as error:
        raise MissingExtraError(
            f"Environment 'envpool:{name}': EnvPool cannot be imported: {error}. Run: pip install"
            " envpool"
        ) from error
    pool = envpool.make(name, env_type="gymnasium", num_envs=num_envs, **arguments)
    return adapt(pool)


def adapt(pool: Any) -> EnvPoolEnvs:
    """Return EnvPool's environments as a vector environment.

    Args:
        pool: What `envpool.make(name, env_type="gymnasium")` returns.

    Raises:
        NotServedError: The pool is asynchronous, has several players, or another `env_type`.
    """
    return EnvPoolEnvs(pool)


class EnvPoolEnvs(VectorEnv[Any, Any, Any]):
    """Vector environment around a pool of EnvPool; see the start of this file.

    Args:
        pool: The pool.

    Raises:
        NotServedError: The pool is asynchronous, has several players, or another `env_type`.
    """

    def __init__(self, pool: Any) -> None:
        name = type(pool).__name__
        config: Mapping[str, Any] = pool.config
        # EnvPool's class for another interface has no spaces.
        _refuse(name, config, is_gymnasium=hasattr(pool, "single_observation_space"))
        self._pool = pool
        self._name = name
        #: The seed, or a seed for each environment.
        self._seed: Any = config.get("seed")
        env_seeds = config.get("env_seed")
        if env_seeds:
            self._seed = list(env_seeds)
        self._was_reset = False
        #: The last observations, for resets of some environments.
        self._obs: TensorTree | None = None

        self.num_envs = int(config["num_envs"])
        self.single_observation_space = _with_infinite_bounds(pool.observation_space)
        self.single_action_space = pool.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {
            "autoreset_mode": AutoresetMode.NEXT_STEP,
            "name": name,
            "seed": self._seed,
        }
        layout = _layout_of(pool)
        if layout is not None:
            self.metadata["image_layout"] = layout

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those that `options["reset_mask"]` selects.

        Args:
            seed: None, or at the first reset the seed that the pool was made with.
            options: `reset_mask`, booleans `[N]`; other environments keep their observation.

        Raises:
            ConfigError: The seed is another one, or the first reset is over.
        """
        self._check_seed(seed)
        self._was_reset = True
        rows = None if options is None else options.get("reset_mask")
        if rows is None:
            self._obs, infos = self._pool.reset()
            return self._obs, _read_infos(infos)
        rows = np.asarray(rows, np.bool_)
        obs_of_rows, infos_of_rows = self._pool.reset(np.flatnonzero(rows).astype(np.int32))
        self._obs = _with_rows(self._obs, obs_of_rows, rows)
        infos = {}
        for key, value in _read_infos(infos_of_rows).items():
            infos[key] = _with_rows(batch=None, values=value, rows=rows)
            infos[f"_{key}"] = rows  # Gymnasium's note of which environments have the entry
        return self._obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in every environment; one whose episode has just ended is reset instead.

        Raises:
            ActionError: An action is not in the action space.
        """
        checked = _checked_actions(self.single_action_space, actions, self._name)
        self._obs, reward, terminated, truncated, infos = self._pool.step(checked)
        return self._obs, reward, terminated, truncated, _read_infos(infos)

    def close(self, **_: Any) -> None:
        """Close the pool."""
        self._pool.close()

    def _check_seed(self, seed: Any) -> None:
        if seed is None:
            return
        if isinstance(seed, list | tuple | np.ndarray):
            seed = [int(one) for one in seed]
        if seed != self._seed:
            problem = f"this one was made with seed={shown(self._seed)}"
        elif self._was_reset:
            problem = "this one has been reset before, so its random numbers have moved on"
        else:
            return
        raise ConfigError(
            f"reset(seed={shown(seed)}): EnvPool takes a seed only when it is made, and {problem}."
            f" Make another one: envpool.make(..., seed={shown(seed)})."
        )


def _refuse(name: str, config: Mapping[str, Any], *, is_gymnasium: bool) -> None:
    """Refuse a pool that a vector environment cannot express.

    Raises:
        NotServedError: It is one.
    """
    num_envs = int(config["num_envs"])
    batch_size = int(config.get("batch_size", num_envs)) or num_envs
    max_num_players = int(config.get("max_num_players", 1))
    if batch_size != num_envs:
        raise NotServedError(
            f"{name} is asynchronous: each step returns {batch_size} of its {num_envs}"
            f" environments, in any order. Make it with batch_size={num_envs}, or without"
            " batch_size."
        )
    if max_num_players > 1:
        raise NotServedError(
            f"{name} has up to {max_num_players} players in each environment, so its rows are not"
            " environments. Train several agents with RLlib: rlcatalog_rllib."
        )
    if not is_gymnasium:
        raise NotServedError(
            f"{name} does not have the interface of Gymnasium. Make it with"
            " envpool.make(..., env_type='gymnasium')."
        )


def _with_infinite_bounds(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a space in which bounds that stand for none are infinite.

    C++ names the smallest positive float and the largest one alike for every type, and EnvPool's
    dm_control has the first for "no lower bound": any negative number would be out of bounds.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _with_infinite_bounds(child) for key, child in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_with_infinite_bounds(child) for child in space])
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    limits = np.finfo(space.dtype)
    is_tiny = (space.low != 0) & (np.abs(space.low) <= limits.tiny)
    low = np.where(is_tiny | (space.low <= limits.min), -np.inf, space.low)
    is_tiny = (space.high != 0) & (np.abs(space.high) <= limits.tiny)
    high = np.where(is_tiny | (space.high >= limits.max), np.inf, space.high)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)


def _layout_of(pool: Any) -> str | None:
    """Return the axes of the pool's images, by the package that defines its class."""
    if len(pool.observation_space.shape or ()) != 3:
        return None
    for cls in type(pool).__mro__:
        for package, layout in _LAYOUTS.items():
            if f"{cls.__module__}.".startswith(f"{package}."):
                return layout
    return None


def _read_infos(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Return EnvPool's infos in Gymnasium's form: arrays with a row for each environment, and masks
    under the name that Gymnasium's environments use.
    """
    entries = {key: value for key, value in infos.items() if key not in _ROW_NUMBERS}
    if _MASK in entries:
        entries["action_mask"] = entries.pop(_MASK)
    return entries


def _with_rows(batch: TensorTree | None, values: TensorTree, rows: Array) -> TensorTree:
    """Return a copy of a batch with other values in some rows.

    Args:
        batch: Arrays `[N, ...]`; None for zeros.
        values: Arrays `[k, ...]`, as many as `rows` selects.
        rows: Booleans `[N]`.
    """
    if isinstance(values, Mapping):
        merged = {}
        for key, value in values.items():
            part = batch[key] if isinstance(batch, Mapping) else None
            merged[key] = _with_rows(part, value, rows)
        return merged
    array = np.asarray(values)
    if batch is None:
        copy = np.zeros((len(rows), *array.shape[1:]), array.dtype)
    else:
        copy = np.array(batch)
    copy[rows] = array
    return copy


def _checked_actions(space: spaces.Space[Any], actions: Any, name: str) -> Any:
    """Return actions as EnvPool takes them: arrays, or a dictionary of arrays.

    EnvPool converts any number, and accepts the index of an action that does not exist.

    Raises:
        ActionError: An action is not an integer of the space.
    """
    if isinstance(space, spaces.Dict):
        return {key: _checked_actions(child, actions[key], name) for key, child in space.items()}
    array = np.asarray(actions)
    if not isinstance(space, spaces.Discrete):
        return array
    start = int(space.start)
    stop = start + int(space.n)
    is_integer = array.dtype.kind in "iu"
    if not is_integer or array.min() < start or array.max() >= stop:
        raise ActionError(
            f"{name}: expected integers from {start} to {stop - 1} as actions; found"
            f" {shown(array)}."
        )
    return array
