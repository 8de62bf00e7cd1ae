"""The config key `critic`: a model config of its own for the value side of a model."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.kernel_keys import ABOUT_OBSERVATION, NOT_IN_CRITIC, SHARED_BY_SIDES
from rlcatalog.config.schema import Schema
from rlcatalog.errors import CatalogError, ConfigError
from rlcatalog.plugins import Part
from rlcatalog.plugins.registry import Registry

#: Kinds of parts that both sides of a model share.
_SHARED_KINDS = ("preprocessor", "filter", "action_dist", "env_wrapper")
#: Those of them that the observation passes.
_KINDS_OF_OBSERVATION = ("preprocessor", "filter", "env_wrapper")


def shared_keys(registry: Registry) -> frozenset[str]:
    """Return the config keys that a critic has from the policy's config: the keys about the
    observation, the action, or both sides.
    """
    return SHARED_BY_SIDES | _keys_of_kinds(registry, _SHARED_KINDS)


def _keys_of_kinds(registry: Registry, kinds: Collection[str]) -> set[str]:
    """Return the config keys of parts of these kinds that no other kind of part has."""
    of_kinds: set[str] = set()
    of_others: set[str] = set()
    for part in registry:
        keys = of_kinds if part.kind in kinds else of_others
        struct = registry.config_struct_of(part)
        if struct is not None:
            names = registry.key_names.get(struct, {})
            keys |= {names.get(field, field) for field in struct.__struct_fields__}  # type: ignore[attr-defined]
    return of_kinds - of_others


def check_critic_keys(config: FlatConfig) -> None:
    """Raise an error if a config's keys about a critic contradict each other.

    Raises:
        ConfigError: There are groups without a critic, or the layers of the policy and its critic
            are shared.
    """
    if config["critic"] is None:
        if config["obs_groups"]:
            raise ConfigError(
                "obs_groups needs a critic of its own, which sees another part of the observation"
                " than the policy. Add critic={} for a critic with the default net."
            )
        return
    if config.explicit.get("vf_share_layers"):
        raise ConfigError(
            "vf_share_layers=True: a critic of its own shares no layers with the policy. Remove"
            " vf_share_layers, or critic."
        )


def parse_critic(
    schema: Schema,
    config: FlatConfig,
    defaults: Mapping[str, Any] | None,
    shared: Collection[str],
) -> FlatConfig:
    """Return a critic's config, complete and checked.

    It takes the shared keys alone from the policy's config: `critic={}` is a critic with the
    default net.

    Args:
        schema: The table of config keys.
        config: The whole config.
        defaults: An engine's defaults for keys that the config does not set; they hold for both
            sides.
        shared: The keys that a critic has from the policy's config.

    Raises:
        ConfigError: A key or a value is wrong, or the key is not for a critic.
    """
    defaults_of_critic = {}
    for key, value in (defaults or {}).items():
        if key not in shared and key not in NOT_IN_CRITIC:
            defaults_of_critic[key] = value
    try:
        parsed = schema.parse(config["critic"], defaults_of_critic)
    except CatalogError as error:
        error.args = (f"critic: {error}",)
        raise
    _check_keys(parsed.explicit, shared)
    for key in shared:
        if key in config:
            parsed[key] = config[key]
    parsed["freeze_parts"] = []  # the names are those of the model of both sides
    parsed.catalog = config.catalog
    return parsed


def config_of_action_critic(
    config: FlatConfig, critic: FlatConfig, registry: Registry
) -> dict[str, Any]:
    """Return the model config of a critic for the values of actions, which is built on its own.

    Args:
        config: The whole config.
        critic: The critic's config, from `parse_critic`.
        registry: The parts.

    Returns:
        The keys that the caller set for the critic, and some from the whole config: those about
        the observation, because the critic gets the same encoded observations as the policy, and
        `init`.
    """
    keys = ABOUT_OBSERVATION | _keys_of_kinds(registry, _KINDS_OF_OBSERVATION) | {"init"}
    shared = {key: value for key, value in config.explicit.items() if key in keys}
    return {**shared, **critic.explicit}


def _check_keys(keys: Iterable[str], shared: Collection[str]) -> None:
    """Raise an error for a key that a critic's config must not set."""
    for key in keys:
        if key in shared:
            raise ConfigError(
                f"critic: {key!r} is about both the policy and the critic. Set it in the config"
                " itself, outside of critic."
            )
        if key in NOT_IN_CRITIC:
            raise ConfigError(
                f"critic: {key!r} is not for a critic, which has one output and no critic itself."
                " Remove it."
            )


def policy_side(config: FlatConfig) -> FlatConfig:
    """Return a config as the policy's parts see it beside a critic: without a value, and without
    the critic's config, which may contain a module.
    """
    side = FlatConfig(config)
    side.given = config.given
    side.explicit = config.explicit
    side["vf_share_layers"] = True
    side["critic"] = {}
    side["freeze_parts"] = []  # the names are those of the model of both sides
    return side


def is_complete(parts: Mapping[str, Part | None]) -> bool:
    """Return whether a critic is a complete model, which estimates the values itself.

    A class in RLlib's form need not work as a trunk, so it is built with one output, and its
    `value_function()` is used.

    Args:
        parts: The parts of the critic's slots.
    """
    trunk = parts["trunk"]
    if trunk is None or parts["memory"] is not None:
        return False
    return trunk.undeclared and not trunk.is_plain


def check_instances(key: str, policy: Part | None, critic: Part | None) -> None:
    """Raise an error if one module instance is the policy's and the critic's.

    Args:
        key: The config key that names both parts.
        policy: The part that it names for the policy.
        critic: The part that it names for the critic.

    Raises:
        ConfigError: Both are the same instance, so that their weights would be the same.
    """
    if policy is None or critic is None or not (policy.is_plain and critic.is_plain):
        return
    instances = [code for code in policy.objects.values() if not _creates_modules(code)]
    for code in critic.objects.values():
        if any(code is instance for instance in instances):
            raise ConfigError(
                f"critic: {key}={critic.name!r} is the instance that is also the policy's, so both"
                " would have the same weights. Pass its class, or a second instance."
            )


def _creates_modules(code: Any) -> bool:
    """Return whether a plain module was given as its class or a factory."""
    return isinstance(code, type | partial) or inspect.isroutine(code)
