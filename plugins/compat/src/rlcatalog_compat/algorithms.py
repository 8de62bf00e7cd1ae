"""RLlib's names of algorithms as thin faces over rlcatalog's PPO and A2C."""

from __future__ import annotations

import copy
import importlib
import math
import os
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlcatalog import default_catalog
from rlcatalog.errors import CatalogWarning, ConfigError, NotServedError
from rlcatalog_compat.acting import act
from rlcatalog_compat.helpers import EnvContext

_ENVS: dict[str, Callable[..., Any]] = {}

#: Keys of RLlib's that say how work is spread over processes or reported: without meaning in one process.
_WITHOUT_EFFECT = frozenset({
    "_enable_learner_api", "_enable_rl_module_api", "batch_mode", "callbacks", "compress_observations",
    "create_env_on_driver", "disable_env_checking", "eager", "eager_max_retraces", "eager_tracing", "enable_connectors",
    "enable_rl_module_and_learner", "evaluation_config", "evaluation_duration", "evaluation_duration_unit",
    "evaluation_interval", "evaluation_num_episodes", "evaluation_num_workers", "experimental_enable_rl_module_api",
    "horizon", "ignore_worker_failures", "log_level", "min_iter_time_s", "min_sample_timesteps_per_iteration",
    "min_time_s_per_iteration", "monitor", "no_done_at_end", "num_cpus_for_driver", "num_cpus_per_env_runner",
    "num_cpus_per_worker", "num_env_runners", "num_gpus", "num_gpus_per_env_runner", "num_gpus_per_worker",
    "num_rollout_workers", "num_workers", "render_env", "shuffle_sequences", "simple_optimizer", "soft_horizon",
    "stop", "tf_session_args", "timesteps_per_iteration", "use_critic", "use_gae", "vf_clip_param",
})  # fmt: skip

#: Keys of RLlib's that are not served, why, and the values that ask for nothing else than what is done here.
_NOT_SERVED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "clip_actions": ("the model key action_bounds says how actions come into their bounds: clip or affine", (False,)),
    "entropy_coeff_schedule": ("the coefficient is the same throughout: entropy_coeff", ()),
    "exploration_config": ("actions are drawn from the distribution", ({}, {"type": "StochasticSampling"})),
    "input": ("recorded data is read by rlcatalog_compat.offline; training on it is behaviour cloning", ("sampler",)),
    "multiagent": ("several agents are trained by RLlib over rlcatalog-rllib; this PPO trains one", ({},)),
    "normalize_actions": ("the model key action_bounds says how actions come into their bounds: clip or affine", ()),
    "optimizer": ("it is Adam, with the learning rate lr", ({},)),
    "policies": ("several agents are trained by RLlib over rlcatalog-rllib; this PPO trains one", ({},)),
}


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Give an environment a name that the algorithms of this module know.

    Args:
        name: The name.
        env_creator: Makes the environment, from its config.
    """
    _ENVS[name] = env_creator


class _Creator:
    """Makes an environment as RLlib does: from a context, which is its config and says which copy it is.

    Args:
        env: A callable that takes the context, or nothing.
        remote: Whether each environment is in a process of its own.
    """

    def __init__(self, env: Callable[..., Any], remote: bool) -> None:
        self._env, self._remote = env, remote

    def __call__(self, config: Any) -> Any:
        takes_config = importlib.import_module("rlcatalog_ppo.environments").takes_config
        if not takes_config(self._env, required=not config):
            return self._env()
        context = EnvContext(config, vector_index=config.index, remote=self._remote, num_workers=0)
        return self._env(context)


def _environment(env: Any, vector: Any = "sync") -> Any:
    """Return an environment as rlcatalog_ppo takes it: an id of Gymnasium, or what makes it."""
    known = _ENVS.get(env, env) if isinstance(env, str) else env
    return _Creator(known, vector == "async") if callable(known) else known


class PPO:
    """PPO under RLlib's constructor: `PPO(config, env)` or `PPO(env=..., config=...)`.

    It trains by `rlcatalog_ppo.PPO`, whose attributes it shows as its own.

    Args:
        config: RLlib's config, or its builder. A call of `train` takes at least `train_batch_size` steps, in whole
            fragments of `rollout_fragment_length` steps in each environment; keys about workers, machines and reports
            have no effect, and one warning names them. `explore` is what `compute_single_action` does unless it is
            told.
        env: A Gymnasium id, a name given to `register_env`, or a callable that takes the environment's config, as an
            `EnvContext`. All environments belong to worker 0, and there are no others.
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
        explore = given.pop("explore", True)
        self._explore = True if explore is None else bool(explore)
        self._env = _environment(env, given.get("vector"))
        self._algorithm = _own_class(self._name)(env=self._env, config=self._own(given))

    def _own(self, given: Mapping[str, Any]) -> dict[str, Any]:
        idle = sorted(key for key in given if key in _WITHOUT_EFFECT)
        if idle:
            warnings.warn(
                f"{type(self).__name__}: these keys of RLlib's have no effect here: {', '.join(idle)}.",
                CatalogWarning,
                stacklevel=4,
            )
        found = {key: value for key, value in given.items() if key not in _WITHOUT_EFFECT}
        for key, (why, harmless) in _NOT_SERVED.items():
            value = found.pop(key, None)
            if value is not None and value not in harmless:
                raise NotServedError(f"{type(self).__name__}: {key}={value!r} is not served: {why}.")
        if "vf_share_layers" in found:  # where RLlib 0.8 had it
            found["model"] = {**found.get("model", {}), "vf_share_layers": found.pop("vf_share_layers")}
        steps = found.pop("train_batch_size", None)
        if found.get("rollout_fragment_length") == "auto":
            del found["rollout_fragment_length"]
        if found.get("framework") in ("tf2", "tfe"):
            found["framework"] = "tf"
        if steps is not None:
            runners = int(found.get("num_envs") or found.pop("num_envs_per_worker", 0) or 8)
            unit = runners * int(found.pop("rollout_fragment_length", 1))
            found |= {"num_envs": runners, "rollout_length": math.ceil(int(steps) / unit) * unit // runners}
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

    def compute_single_action(
        self,
        observation: Any,
        state: Any = None,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
        policy_id: str = "default_policy",
        full_fetch: bool = False,
        explore: bool | None = None,
    ) -> Any:
        """Return the action for one observation; with a state, or `full_fetch`, also the state after it and more.

        Args:
            observation: As the environment gives it.
            state: The state that the last call returned, or the model's initial one; see `acting.act`.
            prev_action: The last action, where the state does not know it.
            prev_reward: The last reward.
            info: Accepted for RLlib's signature.
            policy_id: Accepted for RLlib's signature.
            full_fetch: Return state and further outputs whether or not a state is given.
            explore: Whether the action is drawn; as the config says when missing, and there it is True when missing.

        Returns:
            The action; or the action, the state as a list of arrays, and a dict with the value estimate, the log
            density and the parameters of the distribution under RLlib's names.

        Raises:
            CatalogError: The observation or the state is none of the policy's.
        """
        drawn = self._explore if explore is None else explore
        found = act(self._algorithm.policy, observation, state, prev_action, prev_reward, drawn)
        return found if full_fetch or (state is not None and len(state) > 0) else found[0]

    compute_action = compute_single_action

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> str:
        """Write all that training goes on from, and return the folder, for `restore`.

        Args:
            checkpoint_dir: The folder; a new one below `runs` when missing. `rlcatalog.load(folder + "/policy")` loads
                the policy in it.
        """
        folder = _new_folder(self._name, self._algorithm.iterations) if checkpoint_dir is None else Path(checkpoint_dir)
        self._algorithm.save_checkpoint(folder)
        return str(folder)

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Go on from what `save` wrote, with its config.

        Raises:
            SavedPolicyError: There is no checkpoint, or it is damaged.
        """
        former, self._algorithm = self._algorithm, type(self._algorithm).restore(checkpoint_path, env=self._env)
        former.stop()

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], env: Any = None) -> Any:
        """Return an algorithm that goes on from what `save` wrote.

        Args:
            path: The folder.
            env: The environment, where it was no id of Gymnasium.

        Raises:
            SavedPolicyError: There is no checkpoint, or it is damaged.
        """
        made = cls.__new__(cls)
        made._explore, made._env = True, _environment(env)
        made._algorithm = _own_class(cls._name).restore(path, env=made._env)
        return made

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(self._algorithm, name):
            return getattr(self._algorithm, name)
        raise AttributeError(
            f"{type(self).__name__} of rlcatalog_compat has no {name!r}. It has train, evaluate, get_policy,"
            " compute_single_action, save, restore, from_checkpoint and stop, and what rlcatalog_ppo's has; the model"
            " is get_policy().model."
        )


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
        self._keys: dict[str, Any] = {"env_config": {}, "model": {}}

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
            self._keys["model"] = {**self._keys["model"], **model}
        return self._with(kwargs)

    def debugging(self, **kwargs: Any) -> PPOConfig:
        """Set the seed."""
        return self._with(kwargs)

    rollouts = env_runners = resources = reporting = evaluation = callbacks = api_stack = experimental = debugging
    rl_module = fault_tolerance = exploration = checkpointing = learners = python_environment = offline_data = debugging
    multi_agent = debugging

    def update_from_dict(self, config: Mapping[str, Any]) -> PPOConfig:
        """Set keys."""
        return self._with(config)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that were set, `env_config` and `model` among them in any case."""
        return copy.deepcopy(self._keys)

    def __getitem__(self, key: str) -> Any:
        return self._keys[key]

    def build(self, env: Any = None, **kwargs: Any) -> PPO:
        """Return the algorithm."""
        return PPO(config=self.to_dict(), env=env)

    build_algo = build

    def _with(self, keys: Mapping[str, Any]) -> PPOConfig:
        self._keys |= keys
        return self


#: RLlib's dictionary to start from: here each key has its default where it is missing, but for the two that scripts
#: write into.
DEFAULT_CONFIG: dict[str, Any] = {"env_config": {}, "model": {}}


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


def _new_folder(name: str, iteration: int) -> Path:
    """Return where a checkpoint goes that was given no place."""
    return Path("runs", f"{name}-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}", f"checkpoint_{iteration:06d}")
