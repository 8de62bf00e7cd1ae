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
#: Arguments for which no key has the same meaning → what to use instead.
_ALTERNATIVES = {
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
        resolution: The parts that the model config selects, with a critic of its own if
            `model_config` or `net_arch` asks for one.
        loop: The algorithm's training loop.
    """

    name: str
    value: Any
    resolution: Resolution
    loop: TrainingLoop

    @property
    def text(self) -> str:
        """The argument as it is written in a call, for error messages."""
        return _text_of_argument(self.name, self.value)


def _text_of_argument(name: str, value: Any) -> str:
    return f"{name}={_describe(value)}"


def translate_keywords(
    keywords: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    resolve: Callable[[Mapping[str, Any] | None], Resolution],
    loop: TrainingLoop,
) -> dict[str, Any]:
    """Return the model config with keys translated from keyword arguments for Stable-Baselines3's
    policies.

    `net_arch` sets `fcnet_hiddens` and `vf_share_layers=False`, and different layers for the actor
    and the critic set `critic={"fcnet_hiddens": …}`. `activation_fn` sets `fcnet_activation`,
    `log_std_init=0.0` sets `free_log_std=True`, and `ortho_init` sets `init`.

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
    result: dict[str, Any] = dict(config or {})
    net_arch = keywords.get("net_arch")
    if net_arch is not None and resolution.critic is None and _has_different_sides(net_arch):
        _check_critic_can_be_added(_Argument("net_arch", net_arch, resolution, loop))
        result["critic"] = {}
        resolution = resolve(result)
    for name, value in keywords.items():
        if value is None:  # the default of net_arch
            continue
        argument = _Argument(name, value, resolution, loop)
        translate = _TRANSLATIONS[name]
        _add_keys(argument, translate(argument), resolution.config.explicit, result)
    return result


def _add_keys(
    argument: _Argument,
    keys: Mapping[str, Any],
    explicit: Mapping[str, Any],
    result: dict[str, Any],
    *,
    is_of_critic: bool = False,
) -> None:
    """Add the keys that an argument stands for to a model config.

    Args:
        argument: The argument.
        keys: The keys; those of a critic are in `"critic"`.
        explicit: The keys that the user set.
        result: The model config, or the critic's config, which this function changes.
        is_of_critic: Whether it is the critic's.

    Raises:
        ConfigError: The argument contradicts a key that the user set.
    """
    for key, value in keys.items():
        if key == "critic":
            critic = argument.resolution.critic
            assert critic is not None  # otherwise, a translation returns no keys for it
            config_of_critic = dict(result["critic"])
            _add_keys(argument, value, critic.config.explicit, config_of_critic, is_of_critic=True)
            result["critic"] = config_of_critic
        elif key not in explicit:
            result[key] = value
        elif not same(_in_translated_form(key, explicit[key]), value):
            raise _contradiction(
                argument.text, key, value, explicit[key], is_of_critic=is_of_critic
            )


def _contradiction(
    argument: str, key: str, value: Any, given: Any, *, is_of_critic: bool = False
) -> ConfigError:
    """Return the error for an argument that contradicts the model config.

    Args:
        argument: The argument as it is written in a call.
        key: The key that it stands for.
        value: The value that it means.
        given: The value in the model config.
        is_of_critic: Whether the key is one of the critic's config.
    """
    meaning = f"{key}={shown(value)}"
    found = f"{key}={shown(given)}"
    if is_of_critic:
        meaning = f"critic={{{key!r}: {shown(value)}}}"
        found = f"critic={{{key!r}: {shown(given)}}}"
    return ConfigError(
        f"policy_kwargs: {argument} means {meaning}, but model_config has {found}. Remove one of"
        " them."
    )


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
    """Return the keys for `net_arch`: separate stacks of layers for the actor and the critic."""
    widths = _widths_of_sides(argument.value)
    _check_place_of_layers(argument, widths)
    keys: dict[str, Any] = {"fcnet_hiddens": widths.actor}
    if not argument.loop.learns_q_values:
        keys["vf_share_layers"] = False
    if argument.resolution.critic is not None:
        keys["critic"] = {"fcnet_hiddens": widths.critic}
    return keys


def _check_critic_can_be_added(argument: _Argument) -> None:
    """Raise an error unless the layers that `net_arch` has for the critic alone can become a critic
    of its own.

    Raises:
        ConfigError: The algorithm has no critic, or keeps states; the layers are at a different
            place, or the model config lets the actor and the critic share their layers.
    """
    if argument.loop.learns_q_values:
        raise ConfigError(
            f"policy_kwargs: {argument.text}: {argument.loop.algorithm} has one network; expected"
            " one list of widths, as in [64, 64]."
        )
    widths = _widths_of_sides(argument.value)
    if argument.loop.keeps_states:
        config = {
            "fcnet_hiddens": widths.actor,
            "critic": {"use_lstm": True, "fcnet_hiddens": widths.critic},
        }
        raise ConfigError(
            f"policy_kwargs: {argument.text}: a critic with other layers than the actor needs a"
            f" memory in its own config. Use model_config={shown(config)}, with the actor's memory."
        )
    _check_place_of_layers(argument, widths)
    shares_layers = argument.resolution.config.explicit.get("vf_share_layers")
    if shares_layers:
        raise _contradiction(argument.text, "vf_share_layers", value=False, given=shares_layers)


def _check_place_of_layers(argument: _Argument, widths: _SideWidths) -> None:
    """Raise an error unless the catalog's model has dense layers where `net_arch` expects them."""
    image_advice = (
        "In model_config, conv_filters sets the convolutions and post_fcnet_hiddens the layers"
        " after them."
    )
    critic_advice = ""
    if widths.actor != widths.critic:
        image_advice += _advice_for_critic("post_fcnet_hiddens", widths)
        critic_advice = _advice_for_critic("fcnet_hiddens", widths)
    _check_place_in_net(
        argument, "fcnet_hiddens", image_advice=image_advice, critic_advice=critic_advice
    )


def _advice_for_critic(key: str, widths: _SideWidths) -> str:
    """Return the sentence that says which key gives the critic other layers than the actor."""
    return f" There, critic={{{key!r}: {shown(widths.critic)}}} gives the critic layers of its own."


class _SideWidths(NamedTuple):
    """The widths of the hidden layers of the actor and the critic."""

    actor: list[int]
    critic: list[int]


def _has_different_sides(net_arch: Any) -> bool:
    """Return whether the actor and the critic have layers of different widths."""
    widths = _widths_of_sides(net_arch)
    return widths.actor != widths.critic


def _widths_of_sides(net_arch: Any) -> _SideWidths:
    """Return the widths that `net_arch` has for the actor and for the critic.

    Raises:
        ConfigError: It contains something else than widths for these two.
    """
    sides = net_arch
    is_sequence = isinstance(net_arch, list | tuple)
    if is_sequence and len(net_arch) == 1 and isinstance(net_arch[0], Mapping):
        sides = net_arch[0]  # the form used before Stable-Baselines3 1.8
    if not isinstance(sides, Mapping):
        sides = {"pi": sides, "vf": sides}
    other_names = set(sides) - {"pi", "vf"}
    # As in Stable-Baselines3, a missing list means no hidden layers.
    actor = sides.get("pi", [])
    critic = sides.get("vf", [])
    if other_names or not _are_widths(actor) or not _are_widths(critic):
        raise ConfigError(
            f"policy_kwargs: {_text_of_argument('net_arch', net_arch)}: expected widths, as in"
            " [64, 64] or dict(pi=[64, 64], vf=[64, 64]). For other nets, write a custom_model."
        )
    return _SideWidths([int(width) for width in actor], [int(width) for width in critic])


def _are_widths(value: Any) -> bool:
    """Return whether a value is a list of widths."""
    return isinstance(value, list | tuple) and all(_is_width(width) for width in value)


def _is_width(value: Any) -> bool:
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and bool(value > 0)


def _translate_activation_fn(argument: _Argument) -> dict[str, Any]:
    """Return the keys for `activation_fn`, which holds for the actor and the critic."""
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
    keys: dict[str, Any] = {"fcnet_activation": name}
    if argument.resolution.critic is not None:
        keys["critic"] = {"fcnet_activation": name}
    return keys


def _translate_log_std_init(argument: _Argument) -> dict[str, Any]:
    """Return the key for `log_std_init`: trainable log standard deviations that do not depend on
    the observation.
    """
    resolution = argument.resolution
    info = resolution.action
    dist = resolution.part("action_dist")
    if not info.is_float_box or not _may_read_key(resolution, dist, "free_log_std"):
        raise ConfigError(
            f"policy_kwargs: {argument.text}: {dist.name}, the distribution for {info.describe()},"
            " has no separate log standard deviations (free_log_std). Leave it out."
        )
    value = argument.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != 0:
        weight = "outputs.free_log_std.log_std"
        if resolution.critic is not None:
            weight = f"policy.{weight}"
        raise ConfigError(
            f"policy_kwargs: {argument.text}: in the catalog, they start at 0 if model_config has"
            " free_log_std=True. For another initial value, set that key, and change the weight"
            f" {weight!r} of the algorithm's policy.model with get_weights and set_weights."
        )
    return {"free_log_std": True}


def _translate_ortho_init(argument: _Argument) -> dict[str, Any]:
    """Return the key for `ortho_init`: orthogonal initial weights, or PyTorch's own."""
    if argument.loop.learns_q_values:
        raise ConfigError(
            f"policy_kwargs: {argument.text}: policies of Stable-Baselines3 for"
            f" {argument.loop.algorithm} do not have it. Set init='orthogonal' in model_config."
        )
    if not isinstance(argument.value, bool):
        raise ConfigError(f"policy_kwargs: {argument.text}: expected True or False.")
    return {"init": "orthogonal" if argument.value else "fan_in_uniform"}


#: Keyword argument → function that returns its model config keys.
_TRANSLATIONS: dict[str, Callable[[_Argument], dict[str, Any]]] = {
    "net_arch": _translate_net_arch,
    "activation_fn": _translate_activation_fn,
    "log_std_init": _translate_log_std_init,
    "ortho_init": _translate_ortho_init,
}


def _check_place_in_net(
    argument: _Argument, key: str, *, image_advice: str, critic_advice: str = ""
) -> None:
    """Raise an error unless the catalog's model has dense layers where an argument expects them.

    Args:
        argument: The argument.
        key: The model config key that the argument would set.
        image_advice: Which keys to set instead if the observation contains images.
        critic_advice: What to set for the critic in the other cases.

    Raises:
        ConfigError: The layers are at a different place, or the model has no such dense layers.
    """
    resolution = argument.resolution
    if argument.loop.keeps_states and not resolution.config["memory_first"]:
        raise ConfigError(
            f"policy_kwargs: {argument.text}: Stable-Baselines3's layers come after the memory, but"
            f" memory_first=False puts them before it. Set {key} in model_config, or remove"
            f" memory_first.{critic_advice}"
        )
    if has_images(resolution.request.obs):
        raise ConfigError(
            f"policy_kwargs: {argument.text}: the observation contains images. {image_advice}"
        )
    _check_reads_key(argument, resolution, key, critic_advice=critic_advice)
    if resolution.critic is not None:
        _check_reads_key(argument, resolution.critic, key, place="critic: ")


def _check_reads_key(
    argument: _Argument,
    resolution: Resolution,
    key: str,
    *,
    place: str = "",
    critic_advice: str = "",
) -> None:
    """Raise an error unless the trunk of one side of the model reads a key.

    Args:
        argument: The argument.
        resolution: The choices for this side.
        key: The model config key that the argument would set.
        place: The beginning of the message about this side.
        critic_advice: What to set for the critic.

    Raises:
        ConfigError: The trunk does not read it.
    """
    trunk = resolution.part("trunk")
    if _may_read_key(resolution, trunk, key):
        return
    trunk_keys = ", ".join(resolution.config_keys(trunk)) or "it has none"
    raise ConfigError(
        f"policy_kwargs: {argument.text}: {place}the model {trunk.name} does not read {key}. Set"
        f" its keys in model_config: {trunk_keys}.{critic_advice}"
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
