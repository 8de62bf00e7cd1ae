"""Model settings in Ray's config: defaults that match the algorithm's own nets, and the user's
keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Box
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rlcatalog.config import same
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_rllib.private_api import (
    default_model_config,
    given_model_config,
    given_module_spec,
)
from rlcatalog_rllib.recipe import RAYS_DEFAULTS
from rlcatalog_rllib.rl_module import CatalogModule

_FIELDS = frozenset(field.name for field in dataclasses.fields(DefaultModelConfig))
#: Fields that catalog nets do not support, or prefixes of their names.
_WITHOUT_EQUAL = ("fcnet_use_layernorm", "head_fcnet_use_layernorm", "fusionnet_")


def engine_defaults(config: Any, action_space: Any = None) -> dict[str, Any]:
    """Return model config defaults that match an algorithm's own nets.

    Args:
        config: Ray's AlgorithmConfig.
        action_space: The action space, which determines SAC's distribution.
    """
    own = default_model_config(config)
    found = {key: own[key] for key in sorted(RAYS_DEFAULTS & own.keys())}
    found |= modules_defaults()
    if not config.normalize_actions:
        found["action_bounds"] = "clip"
    if any(cls.__name__ == "SACConfig" for cls in type(config).__mro__) and isinstance(
        action_space, Box
    ):
        found["custom_action_dist"] = "squashed_gaussian"
    return found


def modules_defaults() -> dict[str, Any]:
    """Return the defaults for all algorithms: PyTorch's initialisers."""
    return dict.fromkeys(("fcnet_weights_initializer", "fcnet_bias_initializer"), "fan_in_uniform")


def given_to_ray(config: Any) -> dict[str, Any]:
    """Return the model keys that the user gave in a config, under the catalog's names.

    As in Ray, `training(model=...)` is read first, then `rl_module(model_config=...)` and the
    `model_config` of a spec without a module class. In `training(model=...)` and in a
    `DefaultModelConfig`, keys with Ray's default values are ignored.

    Args:
        config: Ray's AlgorithmConfig.

    Raises:
        ConfigError: A field of `DefaultModelConfig` has no equivalent here.
        NotServedError: The config's `rl_module_spec` describes a different kind of module.
    """
    rays: Any = next(cls for cls in type(config).__mro__ if cls.__module__.startswith("ray."))
    spec = None if config.is_multi_agent else given_module_spec(config)
    if is_the_users(spec):
        raise NotServedError(
            f"rl_module_spec: configure() would replace {_class_of(spec).__name__} with the"
            " catalog's module. Remove the spec, and pass your own model to the catalog:"
            f" model={{'custom_model': ...}}."
        )
    given = {**_unlike(config.model, rays().model), **_told(given_model_config(config))}
    return _translated(given, config) | given_in_spec(config, spec)


def spec_of(config: Any, module_id: str) -> Any:
    """Return the spec for a module in a config with several agents, or None."""
    spec = given_module_spec(config)
    return (
        (spec.rl_module_specs or {}).get(module_id) if isinstance(spec, MultiRLModuleSpec) else spec
    )


def is_the_users(spec: Any) -> bool:
    """Return whether a spec describes a different kind of module."""
    cls = _class_of(spec)
    return cls is not None and not (isinstance(cls, type) and issubclass(cls, CatalogModule))


def given_in_spec(config: Any, spec: Any) -> dict[str, Any]:
    """Return the model config keys of a spec without a module class; empty for a spec from
    `configure`.

    Args:
        config: Ray's AlgorithmConfig.
        spec: The spec, or None.
    """
    return (
        {}
        if spec is None or _class_of(spec) is not None
        else _translated(_told(spec.model_config), config)
    )


def _class_of(spec: Any) -> Any:
    return (
        spec.module_class
        if isinstance(spec, RLModuleSpec)
        else None
        if spec is None
        else type(spec)
    )


def _told(model_config: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(model_config):
        return dict(model_config or {})
    assert not isinstance(model_config, type)
    return _unlike(dataclasses.asdict(model_config), dataclasses.asdict(DefaultModelConfig()))


def _unlike(found: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in found.items()
        if key not in defaults or not same(value, defaults[key])
    }


def _translated(given: Mapping[str, Any], config: Any) -> dict[str, Any]:
    shares, found = (
        {**engine_defaults(config), **given}.get("vf_share_layers", True),
        dict[str, Any](),
    )
    for key, value in given.items():
        if key.startswith(_WITHOUT_EQUAL):
            if same(value, getattr(DefaultModelConfig(), key, None)):
                continue
            raise ConfigError(
                f"model_config: {key}={value!r}: no catalog net supports it. Remove it."
            )
        if key == "head_fcnet_hiddens" and value and shares:
            raise ConfigError(
                f"model_config: {key}={value!r} with vf_share_layers=True: after the shared"
                " layers, Ray builds these layers once for the actions and once for the value;"
                " the catalog's nets share all layers or none. Set vf_share_layers=False, or use"
                " post_fcnet_hiddens for shared layers."
            )
        found[_name(key)] = value
    return found


def _name(key: str) -> str:
    """Return the catalog's name for a key. Ray's new stack renamed some of the old stack's keys."""
    if key not in _FIELDS:
        return key
    if not key.startswith("conv_"):
        key = key.replace("_kernel_initializer", "_weights_initializer")
    return key.replace("head_fcnet_", "post_fcnet_").replace(
        "_initializer_kwargs", "_initializer_config"
    )
