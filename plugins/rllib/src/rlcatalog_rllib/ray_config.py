"""Model settings in Ray's config: defaults that match the algorithm's own nets, and the user's
keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rlcatalog import SpaceInfo
from rlcatalog.config import same
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_rllib.private_api import (
    default_model_config,
    given_model_config,
    given_module_spec,
)
from rlcatalog_rllib.recipe import RAYS_DEFAULTS
from rlcatalog_rllib.rl_module import CatalogModule
from rlcatalog_rllib.spaces import Space

_FIELDS = frozenset(field.name for field in dataclasses.fields(DefaultModelConfig))
#: Fields that catalog nets do not support, or prefixes of their names.
_UNSUPPORTED_FIELDS = ("fcnet_use_layernorm", "head_fcnet_use_layernorm", "fusionnet_")


def engine_defaults(config: AlgorithmConfig, action_space: Space | None = None) -> dict[str, Any]:
    """Return model config defaults that match an algorithm's own nets.

    Args:
        config: Ray's AlgorithmConfig.
        action_space: The action space, which determines SAC's distribution.
    """
    algorithm_defaults = default_model_config(config)
    shared_keys = sorted(RAYS_DEFAULTS & algorithm_defaults.keys())
    defaults = {key: algorithm_defaults[key] for key in shared_keys}
    defaults |= modules_defaults()
    if not config.normalize_actions:  # the user does not want actions to be scaled
        defaults["action_bounds"] = "clip"
    # SAC needs a bounded distribution. Subclasses of its config are recognised, too.
    is_sac = any(cls.__name__ == "SACConfig" for cls in type(config).__mro__)
    if is_sac and action_space is not None and _consists_of_floats(action_space):
        defaults["custom_action_dist"] = "squashed_gaussian"
    return defaults


def _consists_of_floats(action_space: Space) -> bool:
    """Return whether actions are a Box, or a Tuple or Dict of bounded Boxes of floats."""
    if isinstance(action_space, spaces.Box):
        return True
    return SpaceInfo.read(action_space, "action").consists_of_bounded_boxes


def modules_defaults() -> dict[str, Any]:
    """Return the defaults for all algorithms: PyTorch's initialisers."""
    return {
        "fcnet_weights_initializer": "fan_in_uniform",
        "fcnet_bias_initializer": "fan_in_uniform",
    }


def given_to_ray(config: AlgorithmConfig) -> dict[str, Any]:
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
    spec = None if config.is_multi_agent else given_module_spec(config)
    own_class = users_module_class(spec)
    if own_class is not None:
        raise NotServedError(
            f"rl_module_spec: configure() would replace {own_class.__name__} with the"
            " catalog's module. Remove the spec, and pass your own model to the catalog:"
            f" model={{'custom_model': ...}}."
        )
    # The user's config may be a subclass with other default values.
    rays_class: Any = next(cls for cls in type(config).__mro__ if cls.__module__.startswith("ray."))
    settings = _without_defaults(config.model, rays_class().model)
    settings.update(_explicit_settings(given_model_config(config)))
    return {**_translate(settings, config), **given_in_spec(config, spec)}


def spec_of(config: AlgorithmConfig, module_id: str) -> RLModuleSpec | None:
    """Return the spec for a module in a config with several agents, or None."""
    spec = given_module_spec(config)
    if isinstance(spec, MultiRLModuleSpec):
        specs: Any = spec.rl_module_specs or {}
        spec = specs.get(module_id)
    own_spec: RLModuleSpec | None = spec
    return own_spec


def users_module_class(spec: RLModuleSpec | MultiRLModuleSpec | None) -> type | None:
    """Return the class of a different kind of module that a spec describes, if it does."""
    cls = _class_of(spec)
    if cls is None:
        return None
    is_catalogs = isinstance(cls, type) and issubclass(cls, CatalogModule)
    return None if is_catalogs else cls


def given_in_spec(config: AlgorithmConfig, spec: RLModuleSpec | None) -> dict[str, Any]:
    """Return the model config keys of a spec without a module class; empty for a spec from
    `configure`.

    Args:
        config: Ray's AlgorithmConfig.
        spec: The spec, or None.
    """
    if spec is None or _class_of(spec) is not None:
        return {}
    return _translate(_explicit_settings(spec.model_config), config)


def _class_of(spec: RLModuleSpec | MultiRLModuleSpec | None) -> type | None:
    """Return the module class in a spec, if it names one; for another kind of spec, its own class,
    because it describes a module of that kind.
    """
    if spec is None:
        return None
    if isinstance(spec, RLModuleSpec):
        return spec.module_class
    return type(spec)


def _explicit_settings(model_config: Any) -> dict[str, Any]:
    """Return the settings of Ray's `model_config`, without the default values of its dataclass."""
    if not dataclasses.is_dataclass(model_config):
        return dict(model_config or {})
    assert not isinstance(model_config, type)
    defaults = dataclasses.asdict(DefaultModelConfig())
    return _without_defaults(dataclasses.asdict(model_config), defaults)


def _without_defaults(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings whose values differ from the defaults."""
    explicit = {}
    for key, value in settings.items():
        if key not in defaults or not same(value, defaults[key]):
            explicit[key] = value
    return explicit


def _translate(settings: Mapping[str, Any], config: AlgorithmConfig) -> dict[str, Any]:
    """Return Ray's settings under the catalog's names.

    Raises:
        ConfigError: A setting has no equivalent here.
    """
    effective = {**engine_defaults(config), **settings}
    shares_layers = effective.get("vf_share_layers", True)
    rays_defaults = dataclasses.asdict(DefaultModelConfig())
    translated = {}
    for key, value in settings.items():
        if key.startswith(_UNSUPPORTED_FIELDS):
            if same(value, rays_defaults.get(key)):
                continue
            raise ConfigError(
                f"model_config: {key}={value!r}: no catalog net supports it. Remove it."
            )
        if key == "head_fcnet_hiddens" and value and shares_layers:
            raise ConfigError(
                f"model_config: {key}={value!r} with vf_share_layers=True: after the shared"
                " layers, Ray builds these layers once for the actions and once for the value;"
                " the catalog's nets share all layers or none. Set vf_share_layers=False, or use"
                " post_fcnet_hiddens for shared layers."
            )
        translated[_catalog_name(key)] = value
    return translated


def _catalog_name(key: str) -> str:
    """Return the catalog's name for a key. Ray's new stack renamed some of the old stack's keys."""
    if key not in _FIELDS:
        return key
    if not key.startswith("conv_"):
        key = key.replace("_kernel_initializer", "_weights_initializer")
    key = key.replace("head_fcnet_", "post_fcnet_")
    return key.replace("_initializer_kwargs", "_initializer_config")
