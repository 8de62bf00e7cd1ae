"""Errors for parts that Stable-Baselines3's training loops do not support; each error names the
config key.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcatalog import Policy
from rlcatalog.choice import Resolution
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog_sb3.algorithms import OWN_NETS
from rlcatalog_sb3.memories import refuse_memory


def builder_of(policy: Any) -> Any:
    """Return the object that builds a policy, an algorithm or None; call this function in the
    policy's constructor.

    Stable-Baselines3 does not pass this object to a policy, so this function inspects the
    constructor's caller.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_locals.get("self") is policy:
        frame = frame.f_back
    return frame.f_locals.get("self")


def algorithm_around() -> Any:
    """Return the algorithm in whose constructor, or while whose file is loaded, the calling code
    runs; None if there is none.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, BaseAlgorithm):
            return owner
        frame = frame.f_back
    return None


def algorithm_name(builder: type, policy: Any) -> str:
    """Return the name of the algorithm that builds a policy, or of the policy's class if there is
    no algorithm.
    """
    return (builder if _engine_classes(builder) else type(policy)).__name__


def _engine_classes(builder: type) -> set[str]:
    """Return the names of a class's bases that belong to Stable-Baselines3 or sb3-contrib."""
    packages = ("stable_baselines3.", "sb3_contrib.")
    return {cls.__name__ for cls in builder.__mro__ if cls.__module__.startswith(packages)}


def calls_action_masks(builder: type) -> bool:
    """Return whether a class is MaskablePPO, which calls an environment's `action_masks()`."""
    return "MaskablePPO" in _engine_classes(builder)


def refuse_algorithm(policy: Any, builder: type, observation_space: Any) -> None:
    """Reject algorithms that do not act and learn like PPO and A2C.

    Without this check, Stable-Baselines3 would fail only after filling a buffer.

    Args:
        policy: The policy, which is still being constructed.
        builder: The class that builds the policy.
        observation_space: The policy's observation space.

    Raises:
        NotServedError: The algorithm acts or learns differently.
    """
    theirs = _engine_classes(builder)
    name, own = builder.__name__, type(policy).__name__
    shown, env = "MlpPolicy", "env"
    if isinstance(observation_space, spaces.Dict):
        known = "MultiInputPolicy" in getattr(builder, "policy_aliases", {})
        shown, env = ("MultiInputPolicy", env) if known else (shown, "for_sb3(env)")
    way = (
        f'give it a catalog trunk: {name}("{shown}", {env},'
        f' policy_kwargs={{"features_extractor_class": CatalogExtractor,'
        ' "features_extractor_kwargs": {"model_config": {...}}}), with CatalogExtractor from'
        " rlcatalog_sb3."
    )
    if theirs & OWN_NETS:
        raise NotServedError(
            f"{name} does not accept {own}: it builds separate nets for actions and values."
            f" Instead, {way}"
        )
    if "RecurrentPPO" in theirs and not policy.recurrent:
        raise NotServedError(
            f"RecurrentPPO does not accept {own}, which has no state. Use CatalogRecurrentPolicy,"
            " with use_lstm or another memory in model_config."
        )
    if policy.recurrent and theirs & {"A2C", "PPO"} and "RecurrentPPO" not in theirs:
        raise NotServedError(
            f"{name} does not accept {own}: it keeps no state between steps. Train with"
            " rlcatalog_sb3.RecurrentPPO."
        )
    if "TRPO" in theirs:
        raise NotServedError(
            f"TRPO does not accept {own}: it needs distributions from torch.distributions. Use"
            f" PPO(CatalogPolicy, env, target_kl=0.01), which also bounds the divergence, or {way}"
        )


def refuse_filter(resolution: Resolution) -> None:
    """Reject an observation filter, because training and acting would see different inputs.

    Stable-Baselines3 stores unfiltered observations.

    Raises:
        NotServedError: The config sets a filter.
    """
    if resolution.choices["filter"].part is not None:
        name = resolution.config["observation_filter"]
        raise NotServedError(
            f"observation_filter={name!r}: Stable-Baselines3 stores unfiltered observations, so"
            " running statistics would change between acting and training. Instead, normalise"
            " with stable_baselines3.common.vec_env.VecNormalize around the vector environment."
        )


def asking(resolution: Resolution, slot: str) -> str:
    """Return the config keys that select the part for a slot, or the part's name."""
    part = resolution.part(slot)
    own = set(resolution.config_keys(part)) - set(part.declaration.reads)
    return ", ".join(key for key in resolution.config.given if key in own) or part.name


def refuse_model(policy: Policy, *, recurrent: bool, algorithm: str) -> None:
    """Reject models that need features that a training loop does not have.

    Args:
        policy: The policy that contains the model.
        recurrent: Whether the training loop supports a memory's states.
        algorithm: Name of the algorithm that runs the training loop.

    Raises:
        NotServedError: There is an observation filter, or the model requests views or states, or
            has a `custom_loss`.
        ModelContractError: The model has no value branch.
        ConfigError: The loop needs states, but the model has none.
    """
    refuse_filter(policy.resolution)
    memory, name, where = policy.resolution.choices["memory"].part, policy.model_name, ""
    if memory is not None:
        name, where = f"the memory {memory.name!r}", f"{asking(policy.resolution, 'memory')}: "
    refuse_memory(policy, name, where, recurrent=recurrent, algorithm=algorithm)
    if not policy.has_value:
        raise ModelContractError(f"{name} has no value_function(), which {algorithm} needs.")
    if policy.views:
        views = ", ".join(view.name for view in policy.views.all)
        raise NotServedError(
            f"{where}{name} requests the views {views}, but Stable-Baselines3 passes only the"
            " current step to a policy. Remove them, or add them to the observation in an"
            " environment wrapper."
        )
    if policy.overrides("custom_loss"):
        raise NotServedError(
            f"{name}.custom_loss: Stable-Baselines3 does not add a model's custom_loss to its"
            " losses. Train it with rlcatalog-ppo."
        )
