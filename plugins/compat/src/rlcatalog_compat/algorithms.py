"""RLlib's algorithm classes, as wrappers around rlcatalog's PPO and A2C."""

from __future__ import annotations

import importlib
import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import gymnasium
from gymnasium.vector import VectorEnv

from rlcatalog import default_catalog
from rlcatalog.catalog import make_env
from rlcatalog.errors import CatalogWarning, ConfigError, NotServedError
from rlcatalog.frameworks import Tensor
from rlcatalog.reporting import warn_caller
from rlcatalog_compat.helpers import EnvContext
from rlcatalog_compat.policy_face import PolicyFace, act

if TYPE_CHECKING:
    from rlcatalog_ppo.environments import EnvConfig

#: A Gymnasium id or a registered name, a function that creates an environment, or an environment.
Environment = str | Callable[..., Any] | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]

#: Names registered with `register_env` → functions that create the environments.
_ENVS: dict[str, Callable[..., Any]] = {}

#: Number of environments if neither the config nor the environment says it: rlcatalog_ppo's
#: default.
_DEFAULT_NUM_ENVS = 8

#: RLlib keys that have no effect, and unsupported keys.
_KEYS = tomllib.loads(Path(__file__).with_name("algorithms.toml").read_text(encoding="utf-8"))


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Register a name that this module's algorithms accept as an environment.

    Args:
        name: The name.
        env_creator: Function that creates the environment from its config.
    """
    _ENVS[name] = env_creator


class _ConfigBuilder(Protocol):
    """RLlib's config builder, or `rlcatalog_compat.builder.PPOConfig`."""

    def to_dict(self) -> dict[str, Any]: ...


class _Creator:
    """Factory for environments, as in RLlib.

    It passes the environment's config and index in a context.

    Args:
        create_env: A callable that takes the context, or no arguments.
        is_remote: Whether each environment runs in a separate process.
    """

    def __init__(self, create_env: Callable[..., Any], is_remote: bool) -> None:
        self._create_env = create_env
        self._is_remote = is_remote

    def __call__(self, config: EnvConfig) -> Any:
        context = EnvContext(
            config, vector_index=config.index, remote=self._is_remote, num_workers=0
        )
        return make_env(self._create_env, context)


def _with_context(env: Environment | None, is_remote: bool) -> Environment | None:
    """Return an environment in a form that rlcatalog_ppo accepts.

    A function that creates environments gets an `EnvContext`, as in RLlib. An environment, and a
    name that `register_env` does not know, are returned unchanged.

    Args:
        env: Anything that `Algorithm` accepts as an environment.
        is_remote: Whether each environment runs in a separate process.
    """
    if isinstance(env, str):
        env = _ENVS.get(env, env)
    if callable(env):
        return _Creator(env, is_remote)
    return env


def _count_envs(env: Environment | None) -> int | None:
    """Return how many environments an object steps at once, or None if it only says how to create
    them.
    """
    if env is None or isinstance(env, str) or callable(env):
        return None
    # Only Gymnasium's vector environments have this attribute.
    return getattr(env, "num_envs", 1)


def _keys_of(config: Mapping[str, Any] | _ConfigBuilder | None) -> Mapping[str, Any]:
    """Return the keys of a config in any form that RLlib accepts."""
    if config is None:
        return {}
    # The config builder may be RLlib's.
    if hasattr(config, "to_dict"):
        keys: Mapping[str, Any] = config.to_dict()
        return keys
    return config


class Algorithm:
    """Base class for `PPO` and `A2C` with RLlib's constructor: `PPO(config, env)` or
    `PPO(env=..., ...)`.

    It trains with the algorithm of the same name in rlcatalog_ppo, and forwards attribute access to
    it.

    Args:
        config: A config in RLlib's format, or a config builder. Each call to `train` takes at least
            `train_batch_size` steps, in whole fragments of `rollout_fragment_length` steps per
            environment. Keys for workers, machines and reports have no effect, and one warning
            lists them. `explore` sets the default for `compute_single_action`.
        env: Anything that `rlcatalog.catalog.make_env` accepts, or a name registered with
            `register_env`; a config is passed as an `EnvContext`. The only worker is worker 0.
        logger_creator: Accepted for RLlib's signature.
        **kwargs: Further config keys.

    Raises:
        MissingPluginError: rlcatalog-ppo is not installed.
        CatalogError: The config or a space is not supported.
    """

    #: Name of the class in rlcatalog_ppo; empty for the base class.
    _name = ""
    #: Steps per environment in a rollout, where RLlib's default differs from rlcatalog_ppo's.
    _default_rollout_length: ClassVar[int | None] = None

    def __init__(
        self,
        config: Mapping[str, Any] | _ConfigBuilder | None = None,
        env: Environment | None = None,
        logger_creator: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(config, str) or isinstance(env, Mapping):
            raise ConfigError(
                "As in RLlib, the config is the first argument: pass env=... and config=... as"
                " keywords."
            )
        if not self._name:
            raise ConfigError(
                "Algorithm is only a base class. Use one of its subclasses:"
                f" {', '.join(_ALGORITHMS)}."
            )
        rllib_config = {**_keys_of(config), **kwargs}
        config_env = rllib_config.pop("env", None)
        explore = rllib_config.pop("explore", True)
        if env is None:
            env = config_env
        self._explore = explore is None or bool(explore)
        ppo_config = self._convert_config(rllib_config, env_count=_count_envs(env))
        self._env = _with_context(env, is_remote=ppo_config.get("vector") == "async")
        self._algorithm = _ppo_class(self._name)(env=self._env, config=ppo_config)

    def _convert_config(
        self, rllib_config: Mapping[str, Any], env_count: int | None
    ) -> dict[str, Any]:
        """Return RLlib's config as a config of rlcatalog_ppo.

        Args:
            rllib_config: The config, without the environment.
            env_count: Number of environments in the vector environment that the caller passed, or
                None.

        Raises:
            NotServedError: A key asks for something that is not supported.
        """
        name = type(self).__name__
        idle_keys = sorted(rllib_config.keys() & set(_KEYS["without_effect"]))
        if idle_keys:
            warn_caller(
                f"{name}: these RLlib keys have no effect: {', '.join(idle_keys)}.", CatalogWarning
            )
        config = {key: value for key, value in rllib_config.items() if key not in idle_keys}
        for key, refusal in _KEYS["not_served"].items():
            value = config.pop(key, None)
            if value is not None and value not in refusal["harmless"]:
                raise NotServedError(f"{name}: {key}={value!r} is not supported: {refusal['why']}.")
        config = _convert_keys(config)
        _convert_sizes(config, env_count)
        has_length = "rollout_length" in config or "rollout_fragment_length" in config
        if self._default_rollout_length is not None and not has_length:
            config["rollout_length"] = self._default_rollout_length
        return config

    def train(self) -> dict[str, Any]:
        """Collect one rollout, improve the policy on it, and return the results."""
        result: dict[str, Any] = self._algorithm.train()
        return result

    def get_policy(self, policy_id: str = "default_policy") -> Any:
        """Return the policy, which also has RLlib's `get_initial_state` and
        `compute_single_action`.
        """
        return PolicyFace(self._algorithm.policy)

    def compute_single_action(
        self,
        observation: Any,
        state: Sequence[Tensor] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        policy_id: str = "default_policy",
        full_fetch: bool = False,
        explore: bool | None = None,
    ) -> Any:
        """Return the action for one observation; with a state or `full_fetch`, also the next state
        and other outputs.

        Args:
            observation: Observation as returned by the environment.
            state: The state returned by the previous call, or the model's initial state; see
                `policy_face.act`.
            prev_action: The previous action, if the state does not contain it.
            prev_reward: The last reward.
            info: Accepted for RLlib's signature.
            policy_id: Accepted for RLlib's signature.
            full_fetch: Whether to return the state and the other outputs even if no state is
                passed.
            explore: Whether to sample the action. If None, the config's `explore`, which is True by
                default.

        Returns:
            The action alone, or a tuple of the action, the state (a list of arrays) and a dict. The
            dict contains the value estimate, the log density and the distribution's parameters
            under RLlib's names.

        Raises:
            CatalogError: The observation or the state does not match the policy.
        """
        if explore is None:
            explore = self._explore
        action, next_state, outputs = act(
            self._algorithm.policy,
            observation,
            state,
            prev_action=prev_action,
            prev_reward=prev_reward,
            explore=explore,
        )
        has_state = state is not None and len(state) > 0
        if full_fetch or has_state:
            return action, next_state, outputs
        return action

    compute_action = compute_single_action

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> str:
        """Save everything needed to continue training, and return the folder to pass to `restore`.

        Args:
            checkpoint_dir: The folder. If None, a new folder under `runs`. To load only its policy,
                call `rlcatalog.load(folder + "/policy")`.
        """
        if checkpoint_dir is None:
            run = f"{self._name}-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
            checkpoint_dir = Path("runs", run, f"checkpoint_{self._algorithm.iterations:06d}")
        folder = Path(checkpoint_dir)
        self._algorithm.save_checkpoint(folder)
        return str(folder)

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Restore a checkpoint written by `save`, including its config.

        Raises:
            SavedPolicyError: The checkpoint is missing or damaged.
        """
        previous = self._algorithm
        self._algorithm = type(previous).restore(checkpoint_path, env=self._env)
        previous.stop()

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], env: Environment | None = None) -> Any:
        """Return an algorithm restored from a checkpoint written by `save`; `Algorithm` uses the
        class that wrote it.

        Args:
            path: The folder.
            env: The environment; required if the run did not use a Gymnasium id.

        Raises:
            SavedPolicyError: The checkpoint is missing or damaged, or a different algorithm wrote
                it.
        """
        algorithm_class = cls
        if not cls._name:
            checkpoints = importlib.import_module("rlcatalog_ppo.checkpoints")
            _, saved_state = checkpoints.read(path)
            algorithm_class = get_trainable_cls(str(saved_state.get("algorithm")))
        # Not by the constructor, which needs a config: the config is in the checkpoint.
        algorithm = algorithm_class.__new__(algorithm_class)
        algorithm._explore = True
        algorithm._env = _with_context(env, is_remote=False)
        algorithm._algorithm = _ppo_class(algorithm_class._name).restore(path, env=algorithm._env)
        return algorithm

    def __getattr__(self, name: str) -> Any:
        # Attributes of rlcatalog_ppo's algorithm, which this class wraps.
        if not name.startswith("_") and hasattr(self._algorithm, name):
            return getattr(self._algorithm, name)
        raise AttributeError(
            f"{type(self).__name__} of rlcatalog_compat has no {name!r}. It has train, evaluate,"
            " get_policy, compute_single_action, save, restore, from_checkpoint and stop, and the"
            " attributes of rlcatalog_ppo's class; the model is get_policy().model."
        )


class PPO(Algorithm):
    """Proximal policy optimisation, trained by `rlcatalog_ppo.PPO`."""

    _name = "PPO"


PPOTrainer = PPO


class A2CTrainer(Algorithm):
    """Advantage actor-critic, trained by `rlcatalog_ppo.A2C`; its rollouts have RLlib's default
    length.
    """

    _name = "A2C"
    _default_rollout_length = 20


A2C = A3CTrainer = A3C = A2CTrainer

_ALGORITHMS: dict[str, type[Algorithm]] = {"PPO": PPO, "A2C": A2CTrainer}


#: RLlib's default dictionary. It only has the two keys that scripts write into; missing keys have
#: their defaults.
DEFAULT_CONFIG: dict[str, Any] = {"env_config": {}, "model": {}}


def get_trainable_cls(name: str) -> type[Algorithm]:
    """Return the algorithm class with the given RLlib name.

    Raises:
        ConfigError: The algorithm is not supported.
    """
    if name not in _ALGORITHMS:
        raise ConfigError(
            f"Algorithm {name!r} is not supported. Supported: {', '.join(_ALGORITHMS)}."
        )
    return _ALGORITHMS[name]


def _convert_keys(rllib_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose keys and values have rlcatalog_ppo's names and formats, except sizes.

    Raises:
        NotServedError: The config asks for rewards to be clipped to their signs.
    """
    config = dict(rllib_config)
    if "vf_share_layers" in config:  # RLlib 0.8 had this model key beside the model
        vf_share_layers = config.pop("vf_share_layers")
        config["model"] = {**config.get("model", {}), "vf_share_layers": vf_share_layers}
    clip = config.pop("clip_rewards", None)
    if clip is True:
        raise NotServedError(
            "clip_rewards=True replaces rewards with their signs, which is not supported. For"
            " integer rewards, use clip_rewards=1.0; otherwise, wrap the environment in"
            " gymnasium.wrappers.TransformReward."
        )
    if clip:
        config["reward_clip"] = float(clip)
    if config.pop("remote_worker_envs", False):
        config["vector"] = "async"
    uses_kl_loss = config.pop("use_kl_loss", True)
    if uses_kl_loss is False:
        config["kl_coeff"] = 0.0
    if config.get("framework") in ("tf2", "tfe"):
        config["framework"] = "tf"
    return config


def _convert_sizes(config: dict[str, Any], env_count: int | None) -> None:
    """Replace RLlib's `train_batch_size` with the number of environments and the length of their
    rollouts, in place.

    Args:
        config: A config in which only sizes still have RLlib's names.
        env_count: Number of environments in the vector environment that the caller passed, or
            None.
    """
    if config.get("rollout_fragment_length") == "auto":
        del config["rollout_fragment_length"]
    train_batch_size = config.pop("train_batch_size", None)
    if train_batch_size is None:
        return
    num_envs = config.get("num_envs")
    if not num_envs:
        num_envs = config.pop("num_envs_per_worker", 0)
    num_envs = int(num_envs or env_count or _DEFAULT_NUM_ENVS)
    # Each environment collects whole fragments; together, they have at least `train_batch_size`
    # steps.
    fragment_length = int(config.pop("rollout_fragment_length", 1))
    steps_per_fragment = num_envs * fragment_length
    fragments = math.ceil(int(train_batch_size) / steps_per_fragment)
    rollout_length = fragments * fragment_length
    config["num_envs"] = num_envs
    config["rollout_length"] = rollout_length
    for key in ("minibatch_size", "sgd_minibatch_size"):
        if config.get(key):
            config[key] = min(int(config[key]), num_envs * rollout_length)


def _ppo_class(name: str) -> Any:
    """Return the algorithm class of rlcatalog_ppo with this name."""
    default_catalog().registry.explain_missing(name, "rlcatalog-ppo")
    module = importlib.import_module("rlcatalog_ppo")
    # The name is `Algorithm._name` of a class in this file.
    return getattr(module, name)
