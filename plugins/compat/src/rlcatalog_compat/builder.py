"""RLlib's config builder."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog_compat.algorithms import PPO, Environment


def _setter(*parameters: str) -> Callable[..., PPOConfig]:
    """Return a method of `PPOConfig` that sets keys.

    Args:
        *parameters: Keys that may be passed as positional arguments, in order.
    """

    def set_keys(self: PPOConfig, *args: Any, **kwargs: Any) -> PPOConfig:
        if len(args) > len(parameters):
            raise TypeError(
                f"expected at most {len(parameters)} positional arguments, found {len(args)}:"
                f" {args}."
            )
        keys = dict(zip(parameters, args, strict=False))
        keys.update(kwargs)
        return self._set(keys)

    return set_keys


class PPOConfig:
    """RLlib's config builder, whose methods take keys and return the builder.

    Keys are also attributes: `config.lr = 1e-4` sets a key, and an unset key has its default from
    rlcatalog_ppo.
    """

    _keys: dict[str, Any]

    def __init__(self, algo_class: type | None = None) -> None:
        # This class's own `__setattr__` would set a key of the config.
        object.__setattr__(self, "_keys", {"env_config": {}, "model": {}})

    def environment(
        self,
        env: Environment | None = None,
        *,
        env_config: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> PPOConfig:
        """Set the environment."""
        if env is not None:
            self._keys["env"] = env
        if env_config is not None:
            self._keys["env_config"] = dict(env_config)
        return self._set(kwargs)

    def framework(self, framework: str | None = None, **kwargs: Any) -> PPOConfig:
        """Set the framework."""
        if framework is not None:
            kwargs["framework"] = framework
        return self._set(kwargs)

    def training(self, **kwargs: Any) -> PPOConfig:
        """Set training keys; keys in `model` are merged with earlier ones."""
        model_keys = kwargs.get("model") or {}
        kwargs["model"] = {**self._keys["model"], **model_keys}
        return self._set(kwargs)

    debugging = rollouts = env_runners = resources = reporting = evaluation = experimental = (
        rl_module
    ) = _setter()
    fault_tolerance = exploration = learners = python_environment = offline_data = multi_agent = (
        debugging
    )
    callbacks = _setter("callbacks_class")
    api_stack = _setter("enable_rl_module_and_learner", "enable_env_runner_and_connector_v2")
    checkpointing = _setter("export_native_model_files", "checkpoint_trainable_policies_only")

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> PPOConfig:
        """Set keys; keys in `model` are merged with earlier ones."""
        return self.training(**config_dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that were set; `env_config` and `model` are always included."""
        return copy.deepcopy(self._keys)

    def copy(self, copy_frozen: bool | None = None) -> PPOConfig:
        """Return an independent copy.

        Args:
            copy_frozen: Accepted for RLlib's signature; a config is never frozen.
        """
        return copy.deepcopy(self)

    def build(self, env: Environment | None = None, **kwargs: Any) -> PPO:
        """Return the algorithm."""
        return PPO(config=self.to_dict(), env=env)

    build_algo = build

    def _set(self, keys: Mapping[str, Any]) -> PPOConfig:
        """Set keys, and return this builder."""
        self._keys.update(keys)
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value: the one that was set, its default in rlcatalog_ppo,
        or `default`.
        """
        # `__getattr__` below knows the keys and their defaults.
        return getattr(self, key, default)

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = value

    __setattr__ = __setitem__

    def __getattr__(self, key: str) -> Any:
        # Called only for names that are not methods; `copy` calls it before the keys exist.
        keys = self.__dict__.get("_keys", {})
        if key in keys:
            return keys[key]
        if not key.startswith("_"):
            ppo_config_class = importlib.import_module("rlcatalog_ppo.config").PPOConfig
            field = ppo_config_class.aliases.get(key, key)
            if field in ppo_config_class.__struct_fields__:
                defaults = ppo_config_class()
                return getattr(defaults, field)  # a field of rlcatalog_ppo's config
        raise AttributeError(
            f"PPOConfig: {key!r} was not set, and rlcatalog_ppo has no default for it."
        )

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __contains__(self, key: str) -> bool:
        return key in self._keys
