"""RLlib's names of algorithms as thin faces over rlcatalog's PPO and A2C."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcatalog import default_catalog
from rlcatalog.errors import CatalogWarning, ConfigError

_ENVS: dict[str, Callable[..., Any]] = {}

#: Keys of RLlib's that say how work is spread over processes or reported: without meaning in one process.
_WITHOUT_EFFECT = frozenset({
    "_enable_learner_api", "_enable_rl_module_api", "batch_mode", "callbacks", "compress_observations",
    "create_env_on_driver", "disable_env_checking", "eager_max_retraces", "enable_connectors",
    "enable_rl_module_and_learner", "evaluation_config", "evaluation_duration", "evaluation_duration_unit",
    "evaluation_interval", "evaluation_num_episodes", "evaluation_num_workers", "experimental_enable_rl_module_api",
    "horizon", "ignore_worker_failures", "log_level", "min_iter_time_s", "min_sample_timesteps_per_iteration",
    "min_time_s_per_iteration", "monitor", "no_done_at_end", "num_cpus_for_driver", "num_cpus_per_env_runner",
    "num_cpus_per_worker", "num_env_runners", "num_gpus", "num_gpus_per_env_runner", "num_gpus_per_worker",
    "num_rollout_workers", "num_workers", "render_env", "shuffle_sequences", "simple_optimizer", "soft_horizon",
    "stop", "tf_session_args", "timesteps_per_iteration", "use_critic", "use_gae", "vf_clip_param",
})  # fmt: skip


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Give an environment a name that the algorithms of this module know.

    Args:
        name: The name.
        env_creator: Makes the environment, from its config.
    """
    _ENVS[name] = env_creator


class PPO:
    """PPO under RLlib's constructor: `PPO(config, env)` or `PPO(env=..., config=...)`.

    It trains by `rlcatalog_ppo.PPO`, whose attributes it shows as its own.

    Args:
        config: RLlib's config, or its builder. `train_batch_size` is the number of steps per call of `train`; keys
            about workers, machines and reports have no effect, and one warning names them.
        env: A Gymnasium id, a name given to `register_env`, or a callable that takes the environment's config.
        logger_creator: Accepted for RLlib's signature.
        **kwargs: Further keys of the config.

    Raises:
        MissingPluginError: rlcatalog-ppo is not installed.
        CatalogError: The config or a space is not served.
    """

    #: Its name in rlcatalog_ppo.
    _name = "PPO"

    def __init__(self, config: Any = None, env: Any = None, logger_creator: Any = None, **kwargs: Any) -> None:
        if isinstance(config, str) or (env is not None and isinstance(env, Mapping)):
            raise ConfigError("The config comes first here, as in RLlib: say env=... and config=... by name.")
        given = {**(config.to_dict() if hasattr(config, "to_dict") else config or {}), **kwargs}
        env = given.pop("env", None) if env is None else env
        given.pop("env", None)
        self._algorithm = _own_class(self._name)(
            env=_ENVS.get(env, env) if isinstance(env, str) else env, config=self._own(given)
        )

    def _own(self, given: Mapping[str, Any]) -> dict[str, Any]:
        idle = sorted(key for key in given if key in _WITHOUT_EFFECT)
        if idle:
            warnings.warn(
                f"{type(self).__name__}: these keys of RLlib's have no effect here: {', '.join(idle)}.",
                CatalogWarning,
                stacklevel=4,
            )
        found = {key: value for key, value in given.items() if key not in _WITHOUT_EFFECT}
        if "vf_share_layers" in found:  # where RLlib 0.8 had it
            found["model"] = {**found.get("model", {}), "vf_share_layers": found.pop("vf_share_layers")}
        steps = found.pop("train_batch_size", None)
        if found.get("framework") in ("tf2", "tfe"):
            found["framework"] = "tf"
        if steps is not None:
            runners = int(found.get("num_envs") or found.pop("num_envs_per_worker", 0) or 8)
            found |= {"num_envs": runners, "rollout_length": max(1, int(steps) // runners)}
            found.pop("rollout_fragment_length", None)
        for key in ("minibatch_size", "sgd_minibatch_size"):
            if found.get(key) and steps is not None:
                found[key] = min(int(found[key]), found["num_envs"] * found["rollout_length"])
        return {**found, **self._settings(found)}

    def _settings(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def train(self) -> dict[str, Any]:
        """Collect one rollout, improve the policy on it and report."""
        result: dict[str, Any] = self._algorithm.train()
        return result

    def get_policy(self, policy_id: str = "default_policy") -> Any:
        """Return the policy."""
        return self._algorithm.policy

    def compute_single_action(self, observation: Any, *, explore: bool = False, **kwargs: Any) -> Any:
        """Return the action for one observation.

        Args:
            observation: As the environment gives it.
            explore: Whether it is drawn.
            **kwargs: Accepted for RLlib's signature.
        """
        step = self._algorithm.policy.act(np.asarray(observation)[None], explore=explore)
        return step.action[0]

    compute_action = compute_single_action

    def save(self, checkpoint_dir: str | os.PathLike[str]) -> str:
        """Save the policy into a folder, and return its path; `rlcatalog.load` reads it."""
        self._algorithm.save(checkpoint_dir)
        return str(checkpoint_dir)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._algorithm, name)


PPOTrainer = PPO


class A2CTrainer(PPO):
    """Advantage actor-critic, trained by `rlcatalog_ppo.A2C`; its rollouts are as long as RLlib's unless given."""

    _name = "A2C"

    def _settings(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {} if {"rollout_length", "rollout_fragment_length"} & found.keys() else {"rollout_length": 20}


A2C = A3CTrainer = A3C = A2CTrainer


class PPOConfig:
    """RLlib's builder of configs: each method takes keys and returns the builder."""

    def __init__(self, algo_class: Any = None) -> None:
        self._keys: dict[str, Any] = {}

    def environment(self, env: Any = None, *, env_config: Mapping[str, Any] | None = None, **kwargs: Any) -> PPOConfig:
        """Set the environment."""
        if env is not None:
            self._keys["env"] = env
        if env_config is not None:
            self._keys["env_config"] = dict(env_config)
        return self._with(kwargs)

    def framework(self, framework: str | None = None, **kwargs: Any) -> PPOConfig:
        """Set the framework."""
        return self._with({**kwargs, **({} if framework is None else {"framework": framework})})

    def training(self, **kwargs: Any) -> PPOConfig:
        """Set keys of training; those of `model` are added to the ones set before."""
        model = kwargs.pop("model", None)
        if model is not None:
            self._keys["model"] = {**self._keys.get("model", {}), **model}
        return self._with(kwargs)

    def debugging(self, **kwargs: Any) -> PPOConfig:
        """Set the seed."""
        return self._with(kwargs)

    rollouts = env_runners = resources = reporting = evaluation = callbacks = api_stack = experimental = debugging
    rl_module = fault_tolerance = debugging

    def update_from_dict(self, config: Mapping[str, Any]) -> PPOConfig:
        """Set keys."""
        return self._with(config)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that were set."""
        return dict(self._keys)

    def build(self, env: Any = None, **kwargs: Any) -> PPO:
        """Return the algorithm."""
        return PPO(config=self.to_dict(), env=env)

    build_algo = build

    def _with(self, keys: Mapping[str, Any]) -> PPOConfig:
        self._keys |= keys
        return self


#: RLlib's dictionary to start from: here each key has its default where it is missing.
DEFAULT_CONFIG: dict[str, Any] = {}


def get_trainable_cls(name: str) -> type:
    """Return an algorithm's class by RLlib's name.

    Raises:
        ConfigError: It is not served.
    """
    known = {"PPO": PPO, "A2C": A2CTrainer}
    if name not in known:
        raise ConfigError(f"Algorithm {name!r} is not served; there are: {', '.join(known)}.")
    return known[name]


def _own_class(name: str) -> Any:
    """Return the class of one of rlcatalog's algorithms."""
    default_catalog().registry.explain_missing(name, "rlcatalog-ppo")
    return getattr(importlib.import_module("rlcatalog_ppo"), name)
