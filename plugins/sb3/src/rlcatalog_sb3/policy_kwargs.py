"""Translation of Stable-Baselines3 policies' keyword arguments to model config keys with the same
meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import nn

from rlcatalog.choice import Resolution
from rlcatalog.config import activation_name, same
from rlcatalog.errors import ConfigError, nearest, shown
from rlcatalog_sb3.spaces import has_images

#: PyTorch modules (without arguments) → the catalog's names for activations.
ACTIVATIONS: dict[type, str] = {
    nn.Identity: "linear", nn.ReLU: "relu", nn.Tanh: "tanh", nn.ELU: "elu", nn.SiLU: "silu",
    nn.GELU: "gelu", nn.Sigmoid: "sigmoid", nn.Softplus: "softplus", nn.LeakyReLU: "leaky_relu",
    nn.SELU: "selu",
}  # fmt: skip

_MODEL = (
    "the whole net is the catalog's model. Name one with custom_model in model_config, or use a"
    " Stable-Baselines3 policy with a CatalogExtractor."
)
_SDE = (
    "it is part of use_sde, which the catalog does not support. For a distribution within the"
    " bounds, set custom_action_dist='squashed_gaussian' in model_config."
)
_MEMORIES = (
    "in model_config, vf_share_layers selects one memory for actor and critic (True) or"
    " one each (False)."
)
#: Arguments for which no key has the same meaning → what to use instead.
_REFUSED = {
    "ortho_init": "it affects all layers, but the catalog's output layers, including the value"
    " layer, always start small (normc of std 0.01). For hidden layers like"
    " Stable-Baselines3's with ortho_init=True, set fcnet_weights_initializer='orthogonal' and"
    " fcnet_weights_initializer_config={'gain': 2**0.5} in model_config; PyTorch's default"
    " initial values (ortho_init=False) are not available there.",
    "features_extractor_class": _MODEL,
    "features_extractor_kwargs": _MODEL,
    "share_features_extractor": "in model_config, vf_share_layers selects whether actor and critic"
    " share their layers.",
    "normalize_images": "in model_config, image_scale sets how images are scaled.",
    "full_std": _SDE,
    "use_expln": _SDE,
    "squash_output": _SDE,
    "lstm_hidden_size": "in model_config, set lstm_cell_size together with use_lstm.",
    "n_lstm_layers": "the catalog's LSTM has one layer. For more, write a custom_model with a"
    " memory.",
    "shared_lstm": _MEMORIES,
    "enable_critic_lstm": _MEMORIES,
    "lstm_kwargs": "in model_config, use the keys that begin with lstm_.",
}


def translated(
    keywords: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    resolve: Callable[[Mapping[str, Any] | None], Resolution],
    *,
    policy: str,
    recurrent: bool,
) -> dict[str, Any]:
    """Return the model config with keys translated from keyword arguments for Stable-Baselines3's
    policies.

    `net_arch` sets `fcnet_hiddens` and `vf_share_layers=False`, `activation_fn` sets
    `fcnet_activation`, and `log_std_init=0.0` sets `free_log_std=True`.

    Args:
        keywords: The arguments.
        config: The given model config.
        resolve: Function that looks up the parts that a model config selects.
        policy: Name of the policy, for error messages.
        recurrent: Whether the policy has a memory.

    Raises:
        ConfigError: An argument has no equivalent key, or contradicts the model config.
    """
    if unknown := [name for name in keywords if name not in _TRANSLATIONS]:
        raise _refusal(unknown[0], policy)
    found = resolve(config)
    asked = found.config.explicit
    wanted: dict[str, Any] = {**(config or {})}
    for name, value in keywords.items():
        if value is None:  # the default of net_arch
            continue
        for key, meant in _TRANSLATIONS[name](value, found, recurrent).items():
            if key not in asked:
                wanted[key] = meant
            elif not same(_neutral(key, asked[key]), meant):
                raise ConfigError(
                    f"policy_kwargs: {name}={_said(value)} means {key}={shown(meant)}, but"
                    f" model_config has {key}={shown(asked[key])}. Remove one of them."
                )
    return wanted


#: Keyword arguments that this package's policies accept.
_OWN = ("model_config", "model", "catalog", "optimizer_class", "optimizer_kwargs")


def _refusal(name: str, policy: str) -> ConfigError:
    """Return the error for an argument that has no model config key; it names an alternative."""
    accepted = (*_OWN, *_TRANSLATIONS)
    if name in _REFUSED:
        return ConfigError(f"policy_kwargs: {policy} does not accept {name!r}: {_REFUSED[name]}")
    return ConfigError(
        f"policy_kwargs: {policy} does not accept {name!r}.{nearest(name, accepted)} Accepted:"
        f" {', '.join(accepted)}. Layers, activations and initial values are keys of model_config;"
        " rlcatalog.MODEL_DEFAULTS lists them all."
    )


def _layers(value: Any, found: Resolution, recurrent: bool) -> dict[str, Any]:
    """Return the keys for `net_arch`: identical stacks of layers for the actor and the critic."""
    what = f"net_arch={_said(value)}"
    _refuse_elsewhere(
        what,
        "fcnet_hiddens",
        found,
        recurrent,
        image="In model_config, conv_filters sets the convolutions and post_fcnet_hiddens the"
        " layers after them.",
    )
    if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], Mapping):
        (value,) = value  # the form used before Stable-Baselines3 1.8
    if isinstance(value, Mapping):
        actor, critic = value.get("pi", []), value.get("vf", [])
        if set(value) - {"pi", "vf"} or not same(list(actor), list(critic)):
            raise ConfigError(
                f"policy_kwargs: {what}: the catalog's actor and critic have layers of the same"
                " widths. Pass the same list for both, or set fcnet_hiddens in model_config. For"
                " other nets, write a custom_model."
            )
        value = actor
    widths: list[Any] = list(value) if isinstance(value, list | tuple) else [None]
    if not all(
        isinstance(width, int | np.integer) and not isinstance(width, bool) and width > 0
        for width in widths
    ):
        raise ConfigError(
            f"policy_kwargs: {what}: expected widths, as in [64, 64] or dict(pi=[64, 64], vf=[64,"
            " 64])."
        )
    return {"fcnet_hiddens": [int(width) for width in widths], "vf_share_layers": False}


def _activation(value: Any, found: Resolution, recurrent: bool) -> dict[str, Any]:
    """Return the key for `activation_fn`."""
    what = f"activation_fn={_said(value)}"
    _refuse_elsewhere(
        what,
        "fcnet_activation",
        found,
        recurrent,
        image="In model_config, conv_activation sets the activation of convolutions, and"
        " post_fcnet_activation the activation of the layers after them.",
    )
    name = ACTIVATIONS.get(value) if isinstance(value, type) else None
    if name is None:
        raise ConfigError(
            f"policy_kwargs: {what} has no name in the catalog. Known:"
            f" {', '.join(cls.__name__ for cls in ACTIVATIONS)}. For others, set fcnet_activation"
            " in model_config to a callable."
        )
    return {"fcnet_activation": name}


def _log_std(value: Any, found: Resolution, recurrent: bool) -> dict[str, Any]:
    """Return the key for `log_std_init`: trainable log standard deviations that do not depend on
    the observation.
    """
    what = f"log_std_init={_said(value)}"
    info, dist = found.action, found.part("action_dist")
    single = info.kind == "box" and np.issubdtype(info.dtype, np.floating)
    if not single or not (dist.undeclared or "free_log_std" in found.config_keys(dist)):
        raise ConfigError(
            f"policy_kwargs: {what}: {dist.name}, the distribution for {info.describe()}, has no"
            " separate log standard deviations (free_log_std). Leave it out."
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or value != 0:
        raise ConfigError(
            f"policy_kwargs: {what}: in the catalog, they start at 0 if model_config has"
            " free_log_std=True. For another initial value, set that key, and change the weight"
            " 'outputs.free_log_std.log_std' of the algorithm's policy.model with get_weights and"
            " set_weights."
        )
    return {"free_log_std": True}


_TRANSLATIONS: dict[str, Callable[[Any, Resolution, bool], dict[str, Any]]] = {
    "net_arch": _layers,
    "activation_fn": _activation,
    "log_std_init": _log_std,
}


def _refuse_elsewhere(
    what: str, key: str, found: Resolution, recurrent: bool, *, image: str
) -> None:
    """Reject Stable-Baselines3 layers that are at a different place in the net from the catalog's
    dense layers.

    Raises:
        ConfigError: The layers are at a different place, or the model has no such dense layers.
    """
    if recurrent:
        raise ConfigError(
            f"policy_kwargs: {what}: Stable-Baselines3's layers come after the memory, but the"
            f" catalog's before it. Set {key} in model_config."
        )
    if has_images(found.request.obs):
        raise ConfigError(f"policy_kwargs: {what}: the observation contains images. {image}")
    trunk = found.part("trunk")
    if not trunk.undeclared and key not in (keys := found.config_keys(trunk)):
        raise ConfigError(
            f"policy_kwargs: {what}: the model {trunk.name} does not read {key}. Set its keys in"
            f" model_config: {', '.join(keys) or 'it has none'}."
        )


def _neutral(key: str, value: Any) -> Any:
    """Convert a model config value to the form that translation produces."""
    if key != "fcnet_activation":
        return value
    return ACTIVATIONS.get(value, value) if isinstance(value, type) else activation_name(value, key)


def _said(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else shown(value)
