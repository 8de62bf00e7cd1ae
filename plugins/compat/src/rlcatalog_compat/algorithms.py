"""RLlib's algorithm classes, as wrappers around rlcatalog's PPO and A2C."""

from __future__ import annotations

import importlib
import math
import os
import tomllib
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from rlcatalog import default_catalog
from rlcatalog.catalog import make_env
from rlcatalog.errors import CatalogWarning, ConfigError, NotServedError
from rlcatalog_compat.helpers import EnvContext
from rlcatalog_compat.policy_face import PolicyFace, act

_ENVS: dict[str, Callable[..., Any]] = {}

#: RLlib keys that have no effect, and unsupported keys.
_KEYS = tomllib.loads(Path(__file__).with_name("algorithms.toml").read_text(encoding="utf-8"))


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Register a name that this module's algorithms accept as an environment.

    Args:
        name: The name.
        env_creator: Function that creates the environment from its config.
    """
    _ENVS[name] = env_creator


class _Creator:
    """Factory for environments, as in RLlib.

    It passes the environment's config and index in a context.

    Args:
        env: A callable that takes the context, or no arguments.
        remote: Whether each environment runs in a separate process.
    """

    def __init__(self, env: Callable[..., Any], remote: bool) -> None:
        self._env, self._remote = env, remote

    def __call__(self, config: Any) -> Any:
        return make_env(
            self._env,
            EnvContext(config, vector_index=config.index, remote=self._remote, num_workers=0),
        )


def _environment(env: Any, vector: Any = "sync") -> Any:
    """Return an environment in a form that rlcatalog_ppo accepts: a Gymnasium id, or a function
    that creates it.
    """
    known = _ENVS.get(env, env) if isinstance(env, str) else env
    return _Creator(known, vector == "async") if callable(known) else known


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

    #: Name in rlcatalog_ppo, and the length of RLlib's rollouts if it differs.
    _name = ""
    _own_length: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self, config: Any = None, env: Any = None, logger_creator: Any = None, **kwargs: Any
    ) -> None:
        if isinstance(config, str) or (env is not None and isinstance(env, Mapping)):
            raise ConfigError(
                "As in RLlib, the config is the first argument: pass env=... and config=... as"
                " keywords."
            )
        if not self._name:
            raise ConfigError(
                "Algorithm is only a base class. Use one of its subclasses:"
                f" {', '.join(_ALGORITHMS)}."
            )
        given = {**(config.to_dict() if hasattr(config, "to_dict") else config or {}), **kwargs}
        own_env, explore = given.pop("env", None), given.pop("explore", True)
        env = own_env if env is None else env
        self._explore = explore is None or bool(explore)
        passed = (
            None
            if env is None or isinstance(env, str) or callable(env)
            else getattr(env, "num_envs", 1)
        )
        config = self._own(given, passed)
        self._env = _environment(env, config.get("vector"))
        self._algorithm = _own_class(self._name)(env=self._env, config=config)

    def _own(self, given: Mapping[str, Any], passed: int | None) -> dict[str, Any]:
        name, idle = type(self).__name__, sorted(given.keys() & set(_KEYS["without_effect"]))
        if idle:
            text = f"{name}: these RLlib keys have no effect: {', '.join(idle)}."
            warnings.warn(text, CatalogWarning, stacklevel=4)
        found = {key: value for key, value in given.items() if key not in idle}
        for key, refusal in _KEYS["not_served"].items():
            if (value := found.pop(key, None)) is not None and value not in refusal["harmless"]:
                raise NotServedError(f"{name}: {key}={value!r} is not supported: {refusal['why']}.")
        if "vf_share_layers" in found:  # RLlib 0.8's key
            found["model"] = {
                **found.get("model", {}),
                "vf_share_layers": found.pop("vf_share_layers"),
            }
        found = _own_keys(found)
        steps = found.pop("train_batch_size", None)
        if found.get("rollout_fragment_length") == "auto":
            del found["rollout_fragment_length"]
        if found.get("framework") in ("tf2", "tfe"):
            found["framework"] = "tf"
        if steps is not None:
            runners = int(
                found.get("num_envs") or found.pop("num_envs_per_worker", 0) or passed or 8
            )
            unit = runners * int(found.pop("rollout_fragment_length", 1))
            found |= {
                "num_envs": runners,
                "rollout_length": math.ceil(int(steps) / unit) * unit // runners,
            }
        for key in ("minibatch_size", "sgd_minibatch_size"):
            if found.get(key) and steps is not None:
                found[key] = min(int(found[key]), found["num_envs"] * found["rollout_length"])
        has_length = bool({"rollout_length", "rollout_fragment_length"} & found.keys())
        return found if has_length else {**found, **self._own_length}

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
        state: Any = None,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
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
        drawn = self._explore if explore is None else explore
        found = act(self._algorithm.policy, observation, state, prev_action, prev_reward, drawn)
        return found if full_fetch or (state is not None and len(state) > 0) else found[0]

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
        former, self._algorithm = (
            self._algorithm,
            type(self._algorithm).restore(checkpoint_path, env=self._env),
        )
        former.stop()

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], env: Any = None) -> Any:
        """Return an algorithm restored from a checkpoint written by `save`; `Algorithm` uses the
        class that wrote it.

        Args:
            path: The folder.
            env: The environment; required if the run did not use a Gymnasium id.

        Raises:
            SavedPolicyError: The checkpoint is missing or damaged, or a different algorithm wrote
                it.
        """
        if not cls._name:
            writer = (
                importlib.import_module("rlcatalog_ppo.checkpoints").read(path)[1].get("algorithm")
            )
            cls = get_trainable_cls(str(writer))
        made = cls.__new__(cls)
        made._explore, made._env = True, _environment(env)
        made._algorithm = _own_class(cls._name).restore(path, env=made._env)
        return made

    def __getattr__(self, name: str) -> Any:
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
    _own_length: ClassVar[Mapping[str, Any]] = {"rollout_length": 20}


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


def _own_keys(given: dict[str, Any]) -> dict[str, Any]:
    """Convert RLlib keys whose format differs in rlcatalog_ppo, and return them under
    rlcatalog_ppo's names.

    Raises:
        NotServedError: The config asks for rewards to be clipped to their signs.
    """
    found = dict(given)
    if (clip := found.pop("clip_rewards", None)) is True:
        raise NotServedError(
            "clip_rewards=True replaces rewards with their signs, which is not supported. For"
            " integer rewards, use clip_rewards=1.0; otherwise, wrap the environment in"
            " gymnasium.wrappers.TransformReward."
        )
    if clip:
        found["reward_clip"] = float(clip)
    if found.pop("remote_worker_envs", False):
        found["vector"] = "async"
    if found.pop("use_kl_loss", True) is False:
        found["kl_coeff"] = 0.0
    return found


def _own_class(name: str) -> Any:
    """Return the class of an rlcatalog algorithm."""
    default_catalog().registry.explain_missing(name, "rlcatalog-ppo")
    return getattr(importlib.import_module("rlcatalog_ppo"), name)
