"""Environments created from an id, a class or a function, or passed by the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlcatalog import Catalog, default_catalog
from rlcatalog.catalog import (
    count_envs,
    is_adapter_id,
    is_environment,
    make_env,
    makes_vector,
    registered_id as id_of,
    vector_source,
)
from rlcatalog.errors import ConfigError
from rlcatalog.spaces import read_attribute
from rlcatalog_policy import describe_env
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_ppo.external_env import ExternalVectorEnv
from rlcatalog_runs.evaluation import MOST_ENVS_AT_ONCE
from rlcatalog_runs.seeds import SeedStream, derive_seed

#: The accepted forms of an environment.
AnyEnv: TypeAlias = str | Callable[..., Any] | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]

#: What the collector steps.
TrainingEnvs: TypeAlias = SyncVectorEnv | AsyncVectorEnv | ExternalVectorEnv


class EnvConfig(dict[str, Any]):
    """Environment config, as passed to a callable.

    Args:
        config: The config.
        index: The environment's index in its vector environment.
    """

    def __init__(self, config: Mapping[str, Any], index: int) -> None:
        super().__init__(config)
        self.index = index


class EnvMaker:
    """Factory for environments with installed plugins' wrappers.

    A passed environment is returned unchanged.

    It can be pickled if its contents can, and creates the same environment in another process.

    Args:
        env: An environment in any form that `rlcatalog.catalog.make_env` accepts.
        env_config: The environment's config.
        model: The model config, for the wrappers.
        catalog: Catalog in which to look up the wrappers.

    Attributes:
        num_passed: Number of environments that were passed (see `count_passed`); the caller closes
            them.
        mask_key: Key of action masks in infos, or None if they are not read.
    """

    def __init__(
        self, env: AnyEnv, env_config: Mapping[str, Any], model: Mapping[str, Any], catalog: Catalog
    ) -> None:
        self._env = env
        self._config = env_config
        self._model = model
        self._catalog = catalog
        self.num_passed = count_passed(env)
        self.mask_key = model.get("action_mask_key", "action_mask")

    def __call__(self, index: int = 0) -> Any:
        """Return the environment with the given index in the vector environment."""
        return self._wrap(make_env(self._env, EnvConfig(self._config, index)))

    def _wrap(self, env: Any) -> Any:
        """Return an environment with the wrappers; those of a vector environment were applied to
        its members.
        """
        if count_envs(env) is not None:
            return env
        # The collector reads masks from infos, so that the policy keeps the environment's spaces.
        return self._catalog.wrap_env(env, self._model, move_masks=False)

    def vector(self, n: int, how: str = "sync", *, seed: int | None = None) -> TrainingEnvs:
        """Return `n` environments that are stepped together (see `vector`); passed environments
        stay open.

        If the id, the class or the function makes a vector environment, that one is returned.

        Args:
            n: Number of environments.
            how: `"sync"` or `"async"`.
            seed: The run's seed, for environments that take theirs only when they are made.

        Raises:
            ConfigError: The config does not match the environment that was passed or made.
            ModelContractError: The environments in the vector environment lack a required wrapper.
        """
        if self.num_passed is not None:
            return self._passed_vector(n, how)
        made_vector, first_env = self._make_first(
            n, how, derive_seed(seed, SeedStream.ENVIRONMENTS)
        )
        if made_vector is None:
            return vector(self, n, first_env, how=how, mask_key=self.mask_key)
        self._check_made("num_envs", n, made_vector.num_envs, made_vector)
        self._check_made("vector", how, "sync", made_vector)
        return made_vector

    def evaluation_vector(self, episodes: int, seed: int | None) -> TrainingEnvs:
        """Return environments for an evaluation: as many as are useful for the episodes, or those
        that were passed or made.

        Args:
            episodes: Number of episodes.
            seed: The evaluation's seed, for environments that take theirs only when they are made.
        """
        if self.num_passed is not None:
            return self._passed_vector(self.num_passed, how="sync")
        n = min(episodes, MOST_ENVS_AT_ONCE)
        env_seed = derive_seed(seed, SeedStream.EVALUATION)
        made_vector, first_env = self._make_first(n, "sync", env_seed)
        if made_vector is not None:
            return made_vector
        return vector(self, n, first_env, mask_key=self.mask_key)

    def _make_first(
        self, n: int, how: str, env_seed: int | None
    ) -> tuple[ExternalVectorEnv | None, Callable[[], Any] | None]:
        """Make the first environment, to see whether it is a vector environment.

        Args:
            n: Number of environments, for ids that make all of them at once.
            how: `"sync"` or `"async"`; with the second one, each process makes its own.
            env_seed: Seed for such ids.

        Returns:
            The vector environment, or None; and a function that returns the first of several
            environments, or None if it was not made.
        """
        if makes_vector(self._env):
            config = {"num_envs": n, **self._config}
            if env_seed is not None:
                config.setdefault("seed", env_seed)
        elif how == "async":
            return None, None
        else:
            config = EnvConfig(self._config, index=0)
        env = make_env(self._env, config)
        if count_envs(env) is None:
            return None, partial(self._wrap, env)
        self._catalog.read_env(env, self._model)  # rejects environments that lack a wrapper
        return ExternalVectorEnv(env, closes=True), None

    def _check_made(self, key: str, value: Any, expected: Any, envs: ExternalVectorEnv) -> None:
        """Close a vector environment and raise an error if a config key says something else."""
        if value == expected:
            return
        what, _ = describe_env(envs.env)
        envs.close()
        raise ConfigError(
            f"{key}: expected {expected!r}, because env makes {what}; found {value!r}. Set"
            f" {key}={expected!r}."
        )

    def _passed_vector(self, n: int, how: str) -> TrainingEnvs:
        """Return the passed environments as a vector environment."""
        # The environments exist already, so the config cannot say how to create them.
        self._check_key("env_config", self._config, expected={})
        self._check_key("vector", how, expected="sync")
        self._check_key("num_envs", n, expected=self.num_passed)
        env = make_env(self._env)  # in Gymnasium's form
        if count_envs(env) is None:  # a single environment
            return vector(self, 1, mask_key=self.mask_key)
        self._catalog.read_env(env, self._model)  # rejects environments that lack a wrapper
        return ExternalVectorEnv(env)

    def _check_key(self, key: str, value: Any, *, expected: Any) -> None:
        """Raise an error if a config key says something else than the environments passed."""
        if value != expected:
            what, way = describe_env(self._env)
            raise ConfigError(
                f"{key}: expected {expected!r}, because env is {what}; found {value!r}."
                f" Remove {key}, or {way}"
            )

    def for_evaluation(self, env: AnyEnv | None = None) -> EnvMaker:
        """Return a factory for separate environments, used for evaluations during training.

        Args:
            env: The environment in which to evaluate. If None, a new copy of the training
                environment.

        Raises:
            ConfigError: The training environment was passed, and Gymnasium cannot make another one.
        """
        training_env: Any = self._env
        was_passed = self.num_passed is not None
        means_training_env = env is None or env is training_env
        if means_training_env and not was_passed:
            return self  # an id, a class or a function, of which each call makes a new environment
        make = _make_again(training_env) if env is None else env
        innermost_env = read_attribute(training_env, "unwrapped", training_env)
        is_same_env = was_passed and read_attribute(make, "unwrapped", make) is innermost_env
        if make is None or is_same_env:
            what, way = describe_env(training_env)
            raise ConfigError(
                f"evaluation: expected environments other than the training ones; found {what}."
                " Pass another environment, evaluate(env=...) or Evaluation(..., env=...), or"
                f" {way}"
            )
        return EnvMaker(make, env_config={}, model=self._model, catalog=self._catalog)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state: an id with its registration, but not the default catalog, because each
        process has its own.

        Custom classes are omitted, because no wrapper needs them and unpickling would import their
        framework.
        """
        spec = gymnasium.registry.get(self._env) if isinstance(self._env, str) else None
        catalog = None if self._catalog is default_catalog() else self._catalog
        model = {key: value for key, value in self._model.items() if not key.startswith("custom_")}
        return {**self.__dict__, "_catalog": catalog, "_model": model, "spec": spec}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the state."""
        spec = state.pop("spec")
        if spec is not None:
            gymnasium.registry.setdefault(spec.id, spec)
        self.__dict__ |= state
        if state["_catalog"] is None:
            self._catalog = default_catalog()


def count_passed(env: AnyEnv) -> int | None:
    """Return the number of passed environments: one, or all in a vector environment; None if none
    were passed.
    """
    if not is_environment(env):
        return None
    # In Gymnasium's form, because an adapter may make several environments of one object, such as a
    # game with several agents.
    return count_envs(make_env(env)) or 1


def _make_again(env: AnyEnv | None) -> Callable[[], Any] | None:
    """Return a function that creates an environment from its spec, without a window; None if there
    is no usable spec.

    For a vector environment, the function creates one of its environments; wrappers around the
    whole vector are ignored.
    """
    if vector_source(env) is not None:
        envs = read_attribute(env, "envs", ())  # processes and simulators have none
        env = next(iter(envs), None)
    if id_of(env) is None:
        return None
    spec = deepcopy(read_attribute(env, "spec"))
    # For a wrapper that Gymnasium cannot create again, the spec has no arguments.
    if any(wrapper.kwargs is None for wrapper in spec.additional_wrappers):
        return None
    spec.kwargs.pop("render_mode", None)  # it may open a window
    return partial(gymnasium.make, spec)


def vector(
    make: Callable[[], Any],
    n: int,
    first: Callable[[], Any] | None = None,
    *,
    how: str = "sync",
    mask_key: str | None = "action_mask",
) -> SyncVectorEnv | AsyncVectorEnv:
    """Return `n` environments that are stepped together.

    When an episode ends, its last observation is in `info["final_obs"]`, and the returned one
    starts the next episode.

    Args:
        make: Creates one environment.
        n: Number of environments.
        first: Function that creates the first environment, if it differs from the others.
        how: `"sync"` steps them in turn in this process; `"async"` steps them in parallel, each in
            its own process.
        mask_key: Key of action masks in infos, or None if they are not read.
    """
    makers = [make if first is None else first]
    makers += [make] * (n - 1)
    resumable_makers = [
        partial(_make_resumable, maker, index, count=n, mask_key=mask_key)
        for index, maker in enumerate(makers)
    ]
    if how == "async":
        from rlcatalog_ppo.workers import Workers

        return Workers(resumable_makers)
    # Observations are encoded immediately, so the environments may overwrite them with the next
    # ones.
    return SyncVectorEnv(resumable_makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def _make_resumable(
    make: Callable[[], Any], index: int, *, count: int, mask_key: str | None
) -> Resumable:
    if not isinstance(make, EnvMaker):
        return Resumable(make(), index, count, mask_key=mask_key)
    closes = make.num_passed is None  # the caller closes an environment that was passed
    return Resumable(make(index), index, count, closes=closes, mask_key=mask_key)


def registered_id(folder: Path, env: str | None) -> str:
    """Return the id of the environment that a checkpoint names, without importing its module.

    Raises:
        ConfigError: The checkpoint does not name an environment, or no installed package has
            registered it.
    """
    if env is None:
        raise ConfigError(
            f"{folder}: the environment was not a Gymnasium id; pass it: restore(directory, env)."
        )
    if is_adapter_id(env):
        return env
    module, _, name = env.rpartition(":")  # an id may name the module that registers it
    if module and name not in gymnasium.registry:
        raise ConfigError(
            f"{folder}: its environment {name!r} was registered by the module {module!r}, which is"
            " not imported because a file names it. If you trust that module, import it, or pass"
            " the environment: restore(directory, env)."
        )
    return name
