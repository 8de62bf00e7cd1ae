"""Errors for parts that Stable-Baselines3's training loops do not support; each error names the
config key.
"""

from __future__ import annotations

import sys
from types import FrameType

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy

from rlcatalog import Policy
from rlcatalog.choice import Resolution
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog_sb3.algorithms import OWN_NETS, TrainingLoop
from rlcatalog_sb3.memories import refuse_memory
from rlcatalog_sb3.sides import Side, sides_of
from rlcatalog_sb3.spaces import Space

#: Algorithms that learn values of actions → this package's policies for them.
_Q_POLICIES = {"DQN": "CatalogQPolicy", "QRDQN": "CatalogQuantilePolicy"}


def builder_of(policy: BasePolicy) -> object:
    """Return the object that builds a policy, an algorithm or None; call this function in the
    policy's constructor.

    Stable-Baselines3 does not pass this object to a policy, so this function inspects the
    constructor's caller.
    """
    # The constructors of the policy and of its base classes have the policy as `self`. Skip them
    # all.
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_locals.get("self") is policy:
        frame = frame.f_back
    return frame.f_locals.get("self")


def algorithm_around() -> BaseAlgorithm | None:
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


class BuilderClass:
    """The class of the object that builds a policy, judged by its bases in Stable-Baselines3 and
    sb3-contrib.

    Args:
        cls: The class. If it is not an algorithm's, all properties are False.

    Attributes:
        name: The class's name.
        is_algorithm: Whether one of its bases belongs to these packages.
    """

    def __init__(self, cls: type) -> None:
        packages = ("stable_baselines3.", "sb3_contrib.")
        self.name = cls.__name__
        self._cls = cls
        self._bases = {
            base.__name__ for base in cls.__mro__ if base.__module__.startswith(packages)
        }
        self.is_algorithm = bool(self._bases)

    def has_base(self, name: str) -> bool:
        """Return whether the algorithm is the one with this name, or a subclass of it."""
        return name in self._bases

    @property
    def builds_own_nets(self) -> bool:
        """Whether the algorithm builds separate nets for actions and values."""
        return not self._bases.isdisjoint(OWN_NETS)

    @property
    def is_recurrent(self) -> bool:
        """Whether the algorithm keeps a memory's states between steps."""
        return "RecurrentPPO" in self._bases

    @property
    def is_ppo_or_a2c(self) -> bool:
        """Whether the algorithm is PPO or A2C, without states."""
        return not self.is_recurrent and not self._bases.isdisjoint({"PPO", "A2C"})

    @property
    def is_trpo(self) -> bool:
        """Whether the algorithm is TRPO."""
        return "TRPO" in self._bases

    @property
    def calls_action_masks(self) -> bool:
        """Whether the algorithm is MaskablePPO, which calls an environment's `action_masks()`."""
        return "MaskablePPO" in self._bases

    @property
    def has_policy_for_dicts(self) -> bool:
        """Whether the algorithm has a policy for Dict observations."""
        # Stable-Baselines3's algorithms have this attribute; other builders do not.
        return "MultiInputPolicy" in getattr(self._cls, "policy_aliases", {})


def refuse_algorithm(
    policy: str, builder: BuilderClass, observation_space: Space, *, needs_states: bool
) -> None:
    """Reject algorithms that do not act and learn like PPO and A2C.

    Without this check, Stable-Baselines3 would fail only after filling a buffer.

    Args:
        policy: Name of the policy's class.
        builder: The class that builds the policy.
        observation_space: The policy's observation space.
        needs_states: Whether the policy needs an algorithm that keeps a memory's states.

    Raises:
        NotServedError: The algorithm acts or learns differently.
    """
    for name, q_policy in _Q_POLICIES.items():
        if builder.has_base(name):
            raise NotServedError(
                f"{builder.name} does not accept {policy}: it learns values of actions. Use"
                f" rlcatalog_sb3.{name}({q_policy}, env, ...)."
            )
    if builder.builds_own_nets:
        advice = _advice_to_use_extractor(builder, observation_space)
        raise NotServedError(
            f"{builder.name} does not accept {policy}: it builds separate nets for actions and"
            f" values. Instead, {advice}"
        )
    if builder.is_recurrent and not needs_states:
        raise NotServedError(
            f"RecurrentPPO does not accept {policy}, which has no state. Use"
            " CatalogRecurrentPolicy, with use_lstm or another memory in model_config."
        )
    if builder.is_ppo_or_a2c and needs_states:
        raise NotServedError(
            f"{builder.name} does not accept {policy}: it keeps no state between steps. Train with"
            " rlcatalog_sb3.RecurrentPPO."
        )
    if builder.is_trpo:
        advice = _advice_to_use_extractor(builder, observation_space)
        raise NotServedError(
            f"TRPO does not accept {policy}: it needs distributions from torch.distributions. Use"
            " PPO(CatalogPolicy, env, target_kl=0.01), which also bounds the divergence, or"
            f" {advice}"
        )


def _advice_to_use_extractor(builder: BuilderClass, observation_space: Space) -> str:
    """Return the end of an error message, with a call that uses a `CatalogExtractor`."""
    policy = "MlpPolicy"
    env = "env"
    if isinstance(observation_space, spaces.Dict):
        # An MlpPolicy does not accept Dict observations.
        if builder.has_policy_for_dicts:
            policy = "MultiInputPolicy"
        else:
            env = "for_sb3(env)"
    return (
        f'give it a catalog trunk: {builder.name}("{policy}", {env},'
        f' policy_kwargs={{"features_extractor_class": CatalogExtractor,'
        ' "features_extractor_kwargs": {"model_config": {...}}}), with CatalogExtractor from'
        " rlcatalog_sb3."
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


def refuse_model(policy: Policy, loop: TrainingLoop) -> None:
    """Reject models that need features that a training loop does not have.

    Args:
        policy: The policy that contains the model.
        loop: The training loop.

    Raises:
        NotServedError: There is an observation filter, or the model requests views or states, or
            has a `custom_loss`.
        ModelContractError: The model has no value branch.
        ConfigError: The loop needs states, but the model has none.
    """
    refuse_filter(policy.resolution)
    sides = sides_of(policy)
    refuse_memory(sides, loop)
    if not loop.learns_q_values and not policy.has_value:
        value_side = sides[-1]  # the critic, if there is one
        raise ModelContractError(
            f"{value_side.name} has no value_function(), which {loop.algorithm} needs."
        )
    for side in sides:
        _refuse_views(policy, side)
    if policy.overrides("custom_loss"):
        names = " or ".join(side.name for side in sides)
        raise NotServedError(
            f"{names}.custom_loss: Stable-Baselines3 does not add a model's custom_loss to its"
            " losses. Train it with rlcatalog-ppo."
        )


def _refuse_views(policy: Policy, side: Side) -> None:
    """Reject a side of a policy's model that requests views.

    Raises:
        NotServedError: It requests views.
    """
    names = [view.name for view in policy.views.all if view.name in side.model.view_requirements]
    if names:
        raise NotServedError(
            f"{side.where}{side.name} requests the views {', '.join(names)}, but Stable-Baselines3"
            " passes only the current step to a policy. Remove them, or add them to the observation"
            " in an environment wrapper."
        )
