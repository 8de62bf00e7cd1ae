"""Conversion of a trained Stable-Baselines3 algorithm into a policy that no longer needs
Stable-Baselines3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecTransposeImage
from torch import Tensor, nn

import rlcatalog
from rlcatalog import Policy, SpaceInfo
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog_sb3.features import CatalogExtractor
from rlcatalog_sb3.memories import run_without_memory
from rlcatalog_sb3.policies import CatalogBasePolicy
from rlcatalog_sb3.policy_kwargs import ACTIVATIONS
from rlcatalog_sb3.spaces import Space, origin_of, untransposed

#: SAC clips log standard deviations to this range. TD3 has no standard deviations, and explores
#: with separate noise; its converted policy always has the lowest one.
_LOWEST_LOG_STD = -20.0
_HIGHEST_LOG_STD = 2.0


def to_policy(model: BaseAlgorithm) -> Policy:
    """Convert a trained algorithm of Stable-Baselines3 to a policy of rlcatalog.

    The policy acts on the environment's observations, and can be saved and exported:
    `to_policy(model).save(directory)`. `rlcatalog.load(directory)` then needs no Stable-Baselines3.

    If the algorithm has a `CatalogPolicy`, the result shares its weights. For DQN, SAC and TD3 with
    a `CatalogExtractor`, the weights are copied, and the layers after the extractor become
    `post_fcnet` layers. Q-values become the logits of a Categorical, whose most likely action is
    the greedy one. The actors of SAC and TD3 become squashed Gaussians, with almost no noise for
    TD3. The policies of these three algorithms have no value estimates; `step.value` is 0.

    Args:
        model: The algorithm, such as `PPO` after `learn`.

    Raises:
        NotServedError: The algorithm does not use catalog parts, or cannot be rebuilt from them.

    Example:
        >>> from stable_baselines3 import PPO
        >>> model = PPO("CatalogPolicy", "CartPole-v1", n_steps=64).learn(64)
        >>> to_policy(model).act([[0.0, 0.0, 0.0, 0.0]]).action.shape
        (1,)
    """
    normalize = model.get_vec_normalize_env()
    if normalize is not None and normalize.norm_obs:
        raise NotServedError(
            "VecNormalize: the model sees observations normalised by Stable-Baselines3, which a"
            " converted policy would not. Train with norm_obs=False, or normalise in an"
            " environment wrapper."
        )
    sb3_policy = model.policy
    if isinstance(sb3_policy, CatalogBasePolicy):
        return _in_layout_of_env(sb3_policy.catalog_policy, model)
    if not any(isinstance(module, CatalogExtractor) for module in sb3_policy.modules()):
        raise NotServedError(
            f"{type(sb3_policy).__name__} has no catalog parts; train with CatalogPolicy, or with"
            " CatalogExtractor as features_extractor_class."
        )
    return _in_layout_of_env(_rebuild(sb3_policy, model.action_space), model)


def _rebuild(sb3_policy: BasePolicy, sb3_action_space: Space) -> Policy:
    """Return a policy with the weights of a trunk and of Stable-Baselines3's layers after it.

    Args:
        sb3_policy: The policy of DQN, SAC or TD3, with a `CatalogExtractor`.
        sb3_action_space: Stable-Baselines3's action space, which may be flat.

    Raises:
        NotServedError: No catalog model has these layers.
    """
    layers = _layers_after_trunk(sb3_policy)
    extractor = layers.extractor
    action_space = extractor.env_action_space
    if action_space is None:
        # The environment was not flattened, so Stable-Baselines3 has the environment's own space.
        action_space = sb3_action_space
    config = _config_with_layers(extractor.config, layers.hidden)
    if layers.is_actor:
        config["gaussian_log_std_min"] = _LOWEST_LOG_STD
        config["gaussian_log_std_max"] = _HIGHEST_LOG_STD
        info = SpaceInfo.read(action_space, "action")
        leaves = [space for space in info.walk() if not space.is_composite]
        config["custom_action_dist"] = {leaf.path: "squashed_gaussian" for leaf in leaves}
        if not info.is_composite:
            config["custom_action_dist"] = "squashed_gaussian"
        layers = _ordered_by_leaf(layers, [math.prod(leaf.shape or ()) for leaf in leaves])
    policy = rlcatalog.build(
        extractor.env_observation_space,
        action_space,
        config,
        "torch",
        catalog=extractor.catalog,
        defaults=extractor.rules,  # an extractor from a file keeps its earlier defaults
    )
    _copy_weights(policy, layers)
    _check_outputs(policy, layers)
    return policy


def _in_layout_of_env(policy: Policy, model: BaseAlgorithm) -> Policy:
    """Return a policy that takes images as the algorithm's environment returns them.

    Stable-Baselines3 moves channels that come last to the front (`VecTransposeImage`), so that all
    images which an algorithm sees have them first, and the policy expects them at the end. An
    environment whose images already have their channels first is known only by its wrappers; its
    policy is built again, with the same weights.

    Raises:
        NotServedError: The model does not read images by their layout.
    """
    envs = model.get_env()
    is_flattened = origin_of(model.observation_space, model.action_space) is not None
    if envs is None or is_flattened or _transposes_images(envs):
        return policy
    layout = policy.config["image_layout"]
    space_with_channels_last = untransposed(model.observation_space, layout)
    # The function returns the same object if it does not move any channels.
    policy_expects_channels_last = space_with_channels_last is not model.observation_space
    if not policy_expects_channels_last:
        return policy
    reads_images_by_layout = bool(policy.resolution.image_layouts)
    if not reads_images_by_layout:
        raise NotServedError(
            f"{model.observation_space}: the environment's images have their channels first, but"
            f" {type(policy.model).__name__} was trained on {policy.observation_space}. Set"
            " image_layout='chw' in model_config before training."
        )
    # "chw" stands for channels, height, width: an image's channels come first.
    config = {**policy.resolution.config.given, "image_layout": "chw"}
    converted = rlcatalog.build(
        model.observation_space, policy.action_space, config, "torch", catalog=policy.catalog
    )
    converted.model.set_weights(policy.model.get_weights())
    return converted.to(policy.device)


def _transposes_images(envs: VecEnv) -> bool:
    """Return whether a wrapper moves the channels of the environments' images to the front."""
    while isinstance(envs, VecEnvWrapper):
        if isinstance(envs, VecTransposeImage):
            return True
        envs = envs.venv
    return False


# --- Stable-Baselines3's layers after the trunk ---------------------------------------------------


class _HiddenLayer(NamedTuple):
    """A linear layer and the activation after it, or None if the next layer follows directly."""

    linear: nn.Linear
    activation: nn.Module | None


@dataclass(frozen=True)
class _Layers:
    """The layers of a Stable-Baselines3 policy after the trunk.

    They turn features into Q-values, or into the means and deviations of actions.

    Attributes:
        extractor: The extractor that contains the trunk.
        hidden: The hidden layers.
        output_weight: Weights of the output layer `[outputs, width]`.
        output_bias: Biases of the output layer `[outputs]`.
        compute: Function that computes the outputs `[B, outputs]` from features `[B,
            features_dim]`.
        is_actor: Whether the layers are an actor's, whose outputs are means and log standard
            deviations of actions. Otherwise, the outputs are Q-values.
    """

    extractor: CatalogExtractor
    hidden: list[_HiddenLayer]
    output_weight: Tensor
    output_bias: Tensor
    compute: Callable[[Tensor], Tensor]
    is_actor: bool


def _layers_after_trunk(sb3_policy: BasePolicy) -> _Layers:
    """Return the layers of a policy for DQN, SAC or TD3.

    Raises:
        NotServedError: The policy has other layers than those of DQN, SAC and TD3, or uses
            `use_sde`.
    """
    name = type(sb3_policy).__name__
    # Stable-Baselines3's policies and actors are told apart by their attributes, so that those of
    # algorithms derived from DQN, SAC and TD3 can be converted, too.
    if hasattr(sb3_policy, "q_net"):
        return _dqn_layers(sb3_policy.q_net)
    actor: Any = getattr(sb3_policy, "actor", None)  # absent from other algorithms' policies
    if actor is None:
        raise NotServedError(
            f"{name} has other layers after the trunk than DQN, SAC and TD3; it cannot be"
            " converted."
        )
    if getattr(actor, "use_sde", False):  # an attribute of SAC's actor
        raise NotServedError(
            f"{name} explores with use_sde, which the catalog does not support; it cannot be"
            " converted."
        )
    if hasattr(actor, "log_std"):  # a layer of SAC's actor
        return _sac_layers(actor)
    return _td3_layers(actor, name)


def _dqn_layers(q_network: Any) -> _Layers:
    """Return the layers of DQN's Q-network."""
    *hidden_modules, output = q_network.q_net
    return _Layers(
        extractor=q_network.features_extractor,
        hidden=_hidden_layers(hidden_modules),
        output_weight=output.weight,
        output_bias=output.bias,
        compute=q_network.q_net,
        is_actor=False,
    )


def _sac_layers(actor: Any) -> _Layers:
    """Return the layers of SAC's actor, whose two output layers become one."""

    def means_and_log_stds(features: Tensor) -> Tensor:
        latent = actor.latent_pi(features)
        return torch.cat([actor.mu(latent), actor.log_std(latent)], dim=1)

    return _Layers(
        extractor=actor.features_extractor,
        hidden=_hidden_layers(actor.latent_pi),
        output_weight=torch.cat([actor.mu.weight, actor.log_std.weight]),
        output_bias=torch.cat([actor.mu.bias, actor.log_std.bias]),
        compute=means_and_log_stds,
        is_actor=True,
    )


def _td3_layers(actor: Any, policy_name: str) -> _Layers:
    """Return the layers of TD3's actor, extended by outputs for log standard deviations.

    These outputs are always the lowest, so that the squashed Gaussian has almost no noise.

    Raises:
        NotServedError: The actor does not end with a Tanh, which the squashed Gaussian replaces.
    """
    *modules_before_tanh, tanh = actor.mu
    if not isinstance(tanh, nn.Tanh):
        raise NotServedError(f"{policy_name}: its actor does not end with a Tanh.")
    *hidden_modules, mean_layer = modules_before_tanh
    compute_means = nn.Sequential(*modules_before_tanh)
    # With weights of 0, the log standard deviations are equal to their biases for all features.
    log_std_weight = torch.zeros_like(mean_layer.weight)
    log_std_bias = torch.full_like(mean_layer.bias, _LOWEST_LOG_STD)

    def means_and_log_stds(features: Tensor) -> Tensor:
        means = compute_means(features)
        return torch.cat([means, log_std_bias.expand_as(means)], dim=1)

    return _Layers(
        extractor=actor.features_extractor,
        hidden=_hidden_layers(hidden_modules),
        output_weight=torch.cat([mean_layer.weight, log_std_weight]),
        output_bias=torch.cat([mean_layer.bias, log_std_bias]),
        compute=means_and_log_stds,
        is_actor=True,
    )


def _ordered_by_leaf(layers: _Layers, sizes: Sequence[int]) -> _Layers:
    """Return an actor's layers with their outputs in the order of a catalog distribution.

    An actor has all means before all log standard deviations. A catalog distribution for a Tuple or
    Dict has both of the first leaf before both of the second one, and so on.

    Args:
        layers: The actor's layers.
        sizes: Number of values of each leaf of the action.
    """
    total = sum(sizes)
    order: list[int] = []
    first = 0
    for size in sizes:
        means = range(first, first + size)
        order += means
        order += [total + column for column in means]  # the log standard deviations
        first += size

    def compute(features: Tensor) -> Tensor:
        return layers.compute(features)[:, order]

    return replace(
        layers,
        output_weight=layers.output_weight[order],
        output_bias=layers.output_bias[order],
        compute=compute,
    )


def _hidden_layers(modules: Iterable[nn.Module]) -> list[_HiddenLayer]:
    """Return the linear layers, each with the activation that follows it.

    Raises:
        NotServedError: A module is neither a linear layer nor the activation of one.
    """
    layers: list[_HiddenLayer] = []
    for module in modules:
        needs_activation = bool(layers) and layers[-1].activation is None
        if isinstance(module, nn.Linear):
            layers.append(_HiddenLayer(module, activation=None))
        elif needs_activation and type(module) in ACTIVATIONS:
            layers[-1] = layers[-1]._replace(activation=module)
        else:
            raise NotServedError(
                f"a {type(module).__name__} among Stable-Baselines3's layers cannot be converted."
            )
    return layers


# --- the policy with these layers -----------------------------------------------------------------


def _config_with_layers(
    trunk_config: Mapping[str, Any], hidden: Sequence[_HiddenLayer]
) -> dict[str, Any]:
    """Return a trunk's model config, with hidden layers appended to its `post_fcnet_hiddens`.

    Raises:
        NotServedError: The config has no place for the layers.
    """
    config = dict(trunk_config)
    # These keys have no meaning for the rebuilt policy: it has no value net, and its actions never
    # leave the bounds.
    config.pop("vf_share_layers", None)
    config.pop("action_bounds", None)
    for key in ("no_final_linear", "free_log_std"):
        if config.get(key):
            raise NotServedError(
                f"{key}: Stable-Baselines3's layers after the trunk end with a linear layer. Remove"
                " this key."
            )
    if not hidden:
        return config

    activations = {_activation_name(layer) for layer in hidden}
    trunk_widths = config.get("post_fcnet_hiddens", [])
    needed_activations = set(activations)
    if trunk_widths:
        needed_activations.add(config.get("post_fcnet_activation", "relu"))
    # The catalog has one activation for all post_fcnet layers, those of the trunk included.
    if len(needed_activations) > 1:
        raise NotServedError(
            f"the layers after the trunk have the activations {', '.join(sorted(activations))};"
            " conversion needs one activation for them and the trunk's post_fcnet_hiddens. Set"
            " net_arch=[]."
        )
    config["post_fcnet_hiddens"] = [*trunk_widths, *(layer.linear.out_features for layer in hidden)]
    config["post_fcnet_activation"] = activations.pop()  # the only one
    return config


def _activation_name(layer: _HiddenLayer) -> str:
    """Return the catalog's name for a layer's activation."""
    if layer.activation is None:
        return "linear"
    return ACTIVATIONS[type(layer.activation)]


def _copy_weights(policy: Policy, layers: _Layers) -> None:
    """Copy the weights of the trunk and of the layers after it to the policy's model.

    The value layer, which these layers do not have, gets weights of 0.

    Raises:
        NotServedError: The policy's model does not have the same weights.
    """
    model_weights = weights_of(policy.model)
    trunk_weights = weights_of(layers.extractor.trunk)
    weights = dict(trunk_weights)
    # The model numbers the trunk's own hidden layers first, then Stable-Baselines3's.
    first_number = sum(_is_weight_of_hidden_layer(name) for name in trunk_weights)
    for number, layer in enumerate(layers.hidden, start=first_number):
        weights[f"hidden.layers.{number}.weight"] = _to_array(layer.linear.weight)
        weights[f"hidden.layers.{number}.bias"] = _to_array(layer.linear.bias)
    weights["outputs.logits.weight"] = _to_array(layers.output_weight)
    weights["outputs.logits.bias"] = _to_array(layers.output_bias)
    for name in ("outputs.value.weight", "outputs.value.bias"):
        if name not in model_weights:
            raise _not_rebuilt(policy)
        weights[name] = np.zeros_like(model_weights[name])
    if _shapes(weights) != _shapes(model_weights):
        raise _not_rebuilt(policy)
    set_weights_of(policy.model, weights)


def _is_weight_of_hidden_layer(name: str) -> bool:
    return name.startswith("hidden.layers.") and name.endswith(".weight")


def _to_array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy()


def _shapes(weights: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in weights.items()}


def _check_outputs(policy: Policy, layers: _Layers) -> None:
    """Raise an error unless the rebuilt model has the same outputs as the trained layers.

    Raises:
        NotServedError: The outputs for random inputs differ.
    """
    trunk_device = next(layers.extractor.parameters()).device
    rows = 4  # a few random observations are enough to notice a difference
    encoded = torch.rand(rows, *policy.preprocessor.shape, device=trunk_device)
    with torch.no_grad():
        trunk_inputs = {"obs": encoded, "is_training": False}
        features = run_without_memory(layers.extractor.trunk, trunk_inputs).flatten(start_dim=1)
        expected = layers.compute(features).cpu()
        model_inputs = {"obs": encoded.cpu(), "is_training": False}
        outputs = run_without_memory(policy.model, model_inputs)
    # float32 results differ slightly between devices.
    if not torch.allclose(outputs, expected, rtol=1e-3, atol=1e-4):
        raise _not_rebuilt(policy)


def _not_rebuilt(policy: Policy) -> NotServedError:
    """Return the error for a trunk and layers that the policy's model does not reproduce."""
    return NotServedError(
        f"{type(policy.model).__name__}: no catalog model matches this trunk with"
        " Stable-Baselines3's layers after it, so it cannot be converted. Save the algorithm"
        " instead: model.save(path)."
    )
