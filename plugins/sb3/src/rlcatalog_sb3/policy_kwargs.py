"""Translation of Stable-Baselines3 policies' keyword arguments to model config keys with the same
meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from rlcatalog.choice import Resolution
from rlcatalog.config import activation_name, same
from rlcatalog.errors import ConfigError, nearest, shown
from rlcatalog.plugins import Part
from rlcatalog_sb3.algorithms import TrainingLoop
from rlcatalog_sb3.flat_spaces import is_float_box
from rlcatalog_sb3.spaces import has_images

#: PyTorch modules (without arguments) → the catalog's names for activations.
ACTIVATIONS: dict[type, str] = {
    nn.Identity: "linear",
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.ELU: "elu",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Sigmoid: "sigmoid",
    nn.Softplus: "softplus",
    nn.LeakyReLU: "leaky_relu",
    nn.SELU: "selu",
}

_USE_CUSTOM_MODEL = (
    "the whole net is the catalog's model. Name one with custom_model in model_config, or use a"
    " Stable-Baselines3 policy with a CatalogExtractor."
)
_NO_SDE = (
    "it is part of use_sde, which the catalog does not support. For a distribution within the"
    " bounds, set custom_action_dist='squashed_gaussian' in model_config."
)
_USE_SHARE_LAYERS = (
    "in model_config, vf_share_layers selects one memory for actor and critic (True) or"
    " one each (False)."
)
_USE_INITIALIZERS = (
    "it affects all layers, but the catalog's output layers, including the value layer, always"
    " start small (normc of std 0.01). For hidden layers like Stable-Baselines3's with"
    " ortho_init=True, set fcnet_weights_initializer='orthogonal' and"
    " fcnet_weights_initializer_config={'gain': 2**0.5} in model_config; PyTorch's default"
    " initial values (ortho_init=False) are not available there."
)
#: Arguments for which no key has the same meaning → what to use instead.
_ALTERNATIVES = {
    "ortho_init": _USE_INITIALIZERS,
    "features_extractor_class": _USE_CUSTOM_MODEL,
    "features_extractor_kwargs": _USE_CUSTOM_MODEL,
    "share_features_extractor": "in model_config, vf_share_layers selects whether actor and critic"
    " share their layers.",
    "normalize_images": "in model_config, image_scale sets how images are scaled.",
    "full_std": _NO_SDE,
    "use_expln": _NO_SDE,
    "squash_output": _NO_SDE,
    "lstm_hidden_size": "in model_config, set lstm_cell_size together with use_lstm.",
    "n_lstm_layers": "in model_config, set lstm_num_layers together with use_lstm.",
    "shared_lstm": _USE_SHARE_LAYERS,
    "enable_critic_lstm": _USE_SHARE_LAYERS,
    "lstm_kwargs": "in model_config, use the keys that begin with lstm_.",
}


class _Argument(NamedTuple):
    """A keyword argument for Stable-Baselines3's policies, and the net that it is meant for.

    Attributes:
        name: The argument's name.
        value: Its value.
        resolution: The parts that the model config selects.
        is_after_memory: Whether Stable-Baselines3 would apply the argument to layers that come
            after a memory.
    """

    name: str
    value: Any
    resolution: Resolution
    is_after_memory: bool

    @property
    def text(self) -> str:
        """The argument as it is written in a call, for error messages."""
        return f"{self.name}={_describe(self.value)}"


def translate_keywords(
    keywords: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    resolve: Callable[[Mapping[str, Any] | None], Resolution],
    loop: TrainingLoop,
) -> dict[str, Any]:
    """Return the model config with keys translated from keyword arguments for Stable-Baselines3's
    policies.

    `net_arch` sets `fcnet_hiddens` and `vf_share_layers=False`, `activation_fn` sets
    `fcnet_activation`, and `log_std_init=0.0` sets `free_log_std=True`.

    Args:
        keywords: The arguments.
        config: The given model config.
        resolve: Function that looks up the parts that a model config selects.
        loop: The algorithm's training loop.

    Raises:
        ConfigError: An argument has no equivalent key, or contradicts the model config.
    """
    for name in keywords:
        if name not in _TRANSLATIONS:
            raise _not_accepted(name, loop.policy)
    resolution = resolve(config)
    explicit = resolution.config.explicit
    result: dict[str, Any] = dict(config or {})
    for name, value in keywords.items():
        if value is None:  # the default of net_arch
            continue
        argument = _Argument(name, value, resolution, is_after_memory=loop.keeps_states)
        translate = _TRANSLATIONS[name]
        for key, key_value in translate(argument).items():
            if key not in explicit:
                result[key] = key_value
            elif not same(_in_translated_form(key, explicit[key]), key_value):
                raise ConfigError(
                    f"policy_kwargs: {argument.text} means {key}={shown(key_value)}, but"
                    f" model_config has {key}={shown(explicit[key])}. Remove one of them."
                )
    return result


#: Keyword arguments that this package's policies accept.
_OWN_KEYWORDS = (
    "model_config",
    "model",
    "catalog",
    "optimizer_class",
    "optimizer_kwargs",
    "lr_parts",
)


def _not_accepted(name: str, policy: str) -> ConfigError:
    """Return the error for an argument that has no model config key; it names an alternative."""
    problem = f"policy_kwargs: {policy} does not accept {name!r}"
    if name in _ALTERNATIVES:
        return ConfigError(f"{problem}: {_ALTERNATIVES[name]}")
    accepted = (*_OWN_KEYWORDS, *_TRANSLATIONS)
    return ConfigError(
        f"{problem}.{nearest(name, accepted)} Accepted:"
        f" {', '.join(accepted)}. Layers, activations and initial values are keys of model_config;"
        " rlcatalog.MODEL_DEFAULTS lists them all."
    )


def _translate_net_arch(argument: _Argument) -> dict[str, Any]:
    """Return the keys for `net_arch`: identical stacks of layers for the actor and the critic."""
    _check_place_in_net(
        argument,
        "fcnet_hiddens",
        image_advice="In model_config, conv_filters sets the convolutions and post_fcnet_hiddens"
        " the layers after them.",
    )
    widths = _shared_widths(argument)
    is_sequence = isinstance(widths, list | tuple)
    if not is_sequence or not all(_is_width(width) for width in widths):
        raise ConfigError(
            f"policy_kwargs: {argument.text}: expected widths, as in [64, 64] or dict(pi=[64, 64],"
            " vf=[64, 64])."
        )
    return {"fcnet_hiddens": [int(width) for width in widths], "vf_share_layers": False}


def _shared_widths(argument: _Argument) -> Any:
    """Return the widths that `net_arch` has for both the actor and the critic, unchecked.

    Raises:
        ConfigError: The actor and the critic have different widths.
    """
    net_arch = argument.value
    is_sequence = isinstance(net_arch, list | tuple)
    if is_sequence and len(net_arch) == 1 and isinstance(net_arch[0], Mapping):
        net_arch = net_arch[0]  # the form used before Stable-Baselines3 1.8
    if not isinstance(net_arch, Mapping):
        return net_arch
    actor = net_arch.get("pi", [])
    critic = net_arch.get("vf", [])
    has_other_entries = bool(set(net_arch) - {"pi", "vf"})
    if has_other_entries or not same(list(actor), list(critic)):
        raise ConfigError(
            f"policy_kwargs: {argument.text}: the catalog's actor and critic have layers of the"
            " same widths. Pass the same list for both, or set fcnet_hiddens in model_config. For"
            " other nets, write a custom_model."
        )
    return actor


def _is_width(value: Any) -> bool:
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and bool(value > 0)


def _translate_activation_fn(argument: _Argument) -> dict[str, Any]:
    """Return the key for `activation_fn`."""
    _check_place_in_net(
        argument,
        "fcnet_activation",
        image_advice="In model_config, conv_activation sets the activation of convolutions, and"
        " post_fcnet_activation the activation of the layers after them.",
    )
    # Only classes are looked up, because other values may not be hashable.
    name = ACTIVATIONS.get(argument.value) if isinstance(argument.value, type) else None
    if name is None:
        known = ", ".join(cls.__name__ for cls in ACTIVATIONS)
        raise ConfigError(
            f"policy_kwargs: {argument.text} has no name in the catalog. Known:"
            f" {known}. For others, set fcnet_activation"
            " in model_config to a callable."
        )
    return {"fcnet_activation": name}


def _translate_log_std_init(argument: _Argument) -> dict[str, Any]:
    """Return the key for `log_std_init`: trainable log standard deviations that do not depend on
    the observation.
    """
    resolution = argument.resolution
    info = resolution.action
    dist = resolution.part("action_dist")
    if not is_float_box(info) or not _may_read_key(resolution, dist, "free_log_std"):
        raise ConfigError(
            f"policy_kwargs: {argument.text}: {dist.name}, the distribution for {info.describe()},"
            " has no separate log standard deviations (free_log_std). Leave it out."
        )
    value = argument.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != 0:
        raise ConfigError(
            f"policy_kwargs: {argument.text}: in the catalog, they start at 0 if model_config has"
            " free_log_std=True. For another initial value, set that key, and change the weight"
            " 'outputs.free_log_std.log_std' of the algorithm's policy.model with get_weights and"
            " set_weights."
        )
    return {"free_log_std": True}


#: Keyword argument → function that returns its model config keys.
_TRANSLATIONS: dict[str, Callable[[_Argument], dict[str, Any]]] = {
    "net_arch": _translate_net_arch,
    "activation_fn": _translate_activation_fn,
    "log_std_init": _translate_log_std_init,
}


def _check_place_in_net(argument: _Argument, key: str, *, image_advice: str) -> None:
    """Raise an error unless the catalog's model has dense layers where an argument expects them.

    Args:
        argument: The argument.
        key: The model config key that the argument would set.
        image_advice: Which keys to set instead if the observation contains images.

    Raises:
        ConfigError: The layers are at a different place, or the model has no such dense layers.
    """
    resolution = argument.resolution
    if argument.is_after_memory:
        raise ConfigError(
            f"policy_kwargs: {argument.text}: Stable-Baselines3's layers come after the memory, but"
            f" the catalog's before it. Set {key} in model_config."
        )
    if has_images(resolution.request.obs):
        raise ConfigError(
            f"policy_kwargs: {argument.text}: the observation contains images. {image_advice}"
        )
    trunk = resolution.part("trunk")
    if not _may_read_key(resolution, trunk, key):
        trunk_keys = ", ".join(resolution.config_keys(trunk)) or "it has none"
        raise ConfigError(
            f"policy_kwargs: {argument.text}: the model {trunk.name} does not read {key}. Set its"
            f" keys in model_config: {trunk_keys}."
        )


def _may_read_key(resolution: Resolution, part: Part, key: str) -> bool:
    """Return whether a part may read a config key; one that declares no keys may read any."""
    return part.undeclared or key in resolution.config_keys(part)


def _in_translated_form(key: str, value: Any) -> Any:
    """Convert a model config value to the form that translation produces, to compare the two."""
    if key != "fcnet_activation":
        return value
    if isinstance(value, type):
        return ACTIVATIONS.get(value, value)
    return activation_name(value, key)


def _describe(value: Any) -> str:
    """Return a value's text for error messages."""
    return value.__name__ if isinstance(value, type) else shown(value)
