"""Conversion of a trained Stable-Baselines3 algorithm into a policy that no longer needs
Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnvWrapper, VecTransposeImage
from torch import Tensor, nn

import rlcatalog
from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog_sb3.features import CatalogExtractor
from rlcatalog_sb3.policies import CatalogBasePolicy
from rlcatalog_sb3.policy_kwargs import ACTIVATIONS
from rlcatalog_sb3.spaces import origin_of, untransposed

#: SAC clips log standard deviations to this range. TD3 has no standard deviations, and explores
#: with separate noise.
_LOG_STDS = {"gaussian_log_std_min": -20.0, "gaussian_log_std_max": 2.0}


def to_policy(model: Any) -> Policy:
    """Return the rlcatalog policy of a trained algorithm: `to_policy(model).save(directory)`.

    The policy acts on the environment's observations, and `rlcatalog.load(directory)` does not need
    Stable-Baselines3. If the algorithm has a `CatalogPolicy`, the two share their weights. For DQN,
    SAC and TD3 with a `CatalogExtractor`, the weights are copied, and the layers after the trunk
    become `post_fcnet` layers. Q-values become a Categorical's logits, so that its most likely
    action is the greedy one. Actors become squashed Gaussians, with almost no noise for TD3. These
    policies' value estimates are 0.

    Args:
        model: The algorithm.

    Raises:
        NotServedError: The algorithm does not use catalog parts, or cannot be rebuilt from them.

    Example:
        >>> from stable_baselines3 import PPO
        >>> model = PPO("CatalogPolicy", "CartPole-v1", n_steps=64).learn(64)
        >>> to_policy(model).act([[0.0, 0.0, 0.0, 0.0]]).action.shape
        (1,)
    """
    if (normalize := model.get_vec_normalize_env()) is not None and normalize.norm_obs:
        raise NotServedError(
            "VecNormalize: the model sees observations normalised by Stable-Baselines3, which a"
            " converted policy would not. Train with norm_obs=False, or normalise in an"
            " environment wrapper."
        )
    policy = model.policy
    if isinstance(policy, CatalogBasePolicy):
        return _in_layout_of_env(policy.catalog_policy, model)
    if not any(isinstance(module, CatalogExtractor) for module in policy.modules()):
        raise NotServedError(
            f"{type(policy).__name__} has no catalog parts; train with CatalogPolicy, or with"
            " CatalogExtractor as features_extractor_class."
        )
    hidden, last, head = _layers(policy)
    extractor = (policy.q_net if hasattr(policy, "q_net") else policy.actor).features_extractor
    actions = extractor.own_actions if extractor.own_actions is not None else model.action_space
    config = _config(extractor.config, hidden, box=not hasattr(policy, "q_net"))
    found = rlcatalog.build(
        extractor.own_space,
        actions,
        config,
        "torch",
        catalog=extractor.catalog,
        defaults=extractor.rules,
    )
    _set_weights(found, extractor, hidden, last)
    _check(found, extractor, head)
    return _in_layout_of_env(found, model)


def _in_layout_of_env(policy: Policy, model: Any) -> Policy:
    """Return a policy that takes images as the algorithm's environment returns them.

    Stable-Baselines3 moves channels that come last to the front (`VecTransposeImage`), so that all
    images which an algorithm sees have them first, and the policy expects them at the end. An
    environment whose images already have their channels first is known only by its wrappers; its
    policy is built again, with the same weights.

    Raises:
        NotServedError: The model does not read images by their layout.
    """
    envs = model.get_env()
    own_space = policy.observation_space
    if envs is None or origin_of(model.observation_space, model.action_space) is not None:
        return policy
    while isinstance(envs, VecEnvWrapper):
        if isinstance(envs, VecTransposeImage):
            return policy
        envs = envs.venv
    layout = policy.config["image_layout"]
    if untransposed(model.observation_space, layout) is model.observation_space:
        return policy
    if not policy.resolution.image_layouts:
        raise NotServedError(
            f"{model.observation_space}: the environment's images have their channels first, but"
            f" {type(policy.model).__name__} was trained on {own_space}. Set"
            " image_layout='chw' in model_config before training."
        )
    config = {**policy.config.given, "image_layout": "chw"}
    converted = rlcatalog.build(
        model.observation_space, policy.action_space, config, "torch", catalog=policy.catalog
    )
    converted.model.set_weights(policy.model.get_weights())
    return converted.to(policy.device)


Layer = tuple[nn.Linear, nn.Module | None]


def _layers(
    policy: Any,
) -> tuple[list[Layer], list[tuple[Tensor, Tensor]], Callable[[Tensor], Tensor]]:
    """Return the hidden layers after the features, the last layers' weights and biases, and a
    function for them all.
    """
    if hasattr(policy, "q_net"):
        modules = list(policy.q_net.q_net)
        return _pairs(modules[:-1]), [(modules[-1].weight, modules[-1].bias)], policy.q_net.q_net
    if (actor := getattr(policy, "actor", None)) is None or getattr(actor, "use_sde", False):
        what = "has other layers after the trunk than DQN, SAC and TD3"
        if actor is not None:
            what = "explores with use_sde, which the catalog does not support"
        raise NotServedError(f"{type(policy).__name__} {what}; it cannot be converted.")
    if hasattr(actor, "log_std"):
        latent, mean, log_std = actor.latent_pi, actor.mu, actor.log_std
        both = lambda x: torch.cat([mean(latent(x)), log_std(latent(x))], dim=1)  # noqa: E731
        return (
            _pairs(list(latent)),
            [(mean.weight, mean.bias), (log_std.weight, log_std.bias)],
            both,
        )
    *modules, tanh = list(actor.mu)
    if not isinstance(tanh, nn.Tanh):
        raise NotServedError(f"{type(policy).__name__}: its actor does not end with a Tanh.")
    mean = modules[-1]
    none = (
        torch.zeros_like(mean.weight),
        torch.full_like(mean.bias, _LOG_STDS["gaussian_log_std_min"]),
    )
    inner = nn.Sequential(*modules)
    whole = lambda x: torch.cat([inner(x), none[1].expand(len(x), -1)], dim=1)  # noqa: E731
    return _pairs(modules[:-1]), [(mean.weight, mean.bias), none], whole


def _pairs(modules: list[nn.Module]) -> list[Layer]:
    """Return the linear layers, each with the activation that follows it."""
    found: list[Layer] = []
    for module in modules:
        if isinstance(module, nn.Linear):
            found.append((module, None))
        elif found and found[-1][1] is None and type(module) in ACTIVATIONS:
            found[-1] = (found[-1][0], module)
        else:
            raise NotServedError(
                f"a {type(module).__name__} among Stable-Baselines3's layers cannot be converted."
            )
    return found


def _config(given: Any, hidden: list[Layer], box: bool) -> dict[str, Any]:
    config = {
        key: value
        for key, value in given.items()
        if key not in ("vf_share_layers", "action_bounds")
    }
    for key in ("no_final_linear", "free_log_std"):
        if config.get(key):
            raise NotServedError(
                f"{key}: Stable-Baselines3's layers after the trunk end with a linear layer."
                " Remove this key."
            )
    if hidden:
        names = {ACTIVATIONS[type(activation or nn.Identity())] for _, activation in hidden}
        before = config.get("post_fcnet_hiddens", [])
        if len(names | ({config.get("post_fcnet_activation", "relu")} if before else set())) > 1:
            raise NotServedError(
                f"the layers after the trunk have the activations {', '.join(sorted(names))};"
                " conversion needs one activation for them and the trunk's post_fcnet_hiddens."
                " Set net_arch=[]."
            )
        config["post_fcnet_hiddens"] = [*before, *(layer.out_features for layer, _ in hidden)]
        config["post_fcnet_activation"] = names.pop()
    return {**config, **_LOG_STDS, "custom_action_dist": "squashed_gaussian"} if box else config


def _set_weights(
    policy: Policy, extractor: CatalogExtractor, hidden: list[Layer], last: list[Any]
) -> None:
    """Copy weights by canonical name, and set the value layer's weights to zero."""
    wanted = weights_of(policy.model)
    trunk = weights_of(extractor.trunk)
    first = sum(name.startswith("hidden.layers.") and name.endswith(".weight") for name in trunk)
    weights = {**trunk}
    for number, (layer, _) in enumerate(hidden, start=first):
        weights |= {
            f"hidden.layers.{number}.weight": layer.weight,
            f"hidden.layers.{number}.bias": layer.bias,
        }
    for kind, index in (("weight", 0), ("bias", 1)):
        weights[f"outputs.logits.{kind}"] = torch.cat([pair[index] for pair in last])
        weights[f"outputs.value.{kind}"] = np.zeros_like(
            wanted.get(f"outputs.value.{kind}", np.zeros(0))
        )
    arrays = {
        name: np.asarray(torch.as_tensor(value).detach().cpu()) for name, value in weights.items()
    }
    shapes = {name: value.shape for name, value in arrays.items()}
    if shapes != {name: value.shape for name, value in wanted.items()}:
        raise _not_rebuilt(policy)
    set_weights_of(policy.model, arrays)


def _check(policy: Policy, extractor: CatalogExtractor, head: Callable[[Tensor], Tensor]) -> None:
    """Raise an error unless the rebuilt model has the same outputs as the trunk and the layers
    after it.
    """
    device = next(iter(extractor.parameters())).device
    encoded = torch.rand(4, *policy.preprocessor.shape, device=device)
    with torch.no_grad():
        expected = head(
            extractor.trunk({"obs": encoded, "is_training": False}, [], None)[0].flatten(1)
        ).cpu()
        found = policy.model({"obs": encoded.cpu(), "is_training": False}, [], None)[0]
    if not torch.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise _not_rebuilt(policy)


def _not_rebuilt(policy: Policy) -> NotServedError:
    return NotServedError(
        f"{type(policy.model).__name__}: no catalog model matches this trunk with"
        " Stable-Baselines3's layers after it, so it cannot be converted. Save the algorithm"
        " instead: model.save(path)."
    )
