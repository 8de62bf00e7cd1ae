"""`CatalogPolicy`: a policy for PPO and A2C with parts from the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from torch import Tensor

from rlcatalog import Catalog, Policy
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_policy import UNSAVED_RULES, config_with_model
from rlcatalog_sb3.actor_critic import ActorCritic, CatalogDistribution
from rlcatalog_sb3.private_api import EARLIER_LEARNING_RATE, SavablePolicy
from rlcatalog_sb3.refusals import (
    algorithm_name,
    builder_of,
    calls_action_masks,
    refuse_algorithm,
)
from rlcatalog_sb3.saved_rules import find_rules, keep_rules, rules_of
from rlcatalog_sb3.spaces import origin_of
from rlcatalog_sb3.unread_masks import UnreadMasks
from rlcatalog_torch.private_api import Movable


class CatalogBasePolicy(Movable, SavablePolicy):
    """Base class for this package's policies; do not use it directly.

    Args:
        observation_space: Stable-Baselines3's observation space.
        action_space: Stable-Baselines3's action space.
        lr_schedule: Learning rate as a function of the remaining progress.
        model_config: The model config. If None, the config that the environment was flattened with,
            or the defaults.
        model: The model to use, such as a plain `torch.nn.Module`; it becomes the model config's
            `"custom_model"`.
        catalog: The catalog for the parts. If None, the catalog that the environment was flattened
            with, or the process's.
        frozen: Whether a frozen policy, which acts faster, collects rollouts: `"auto"` (if it saves
            time), `"always"` or `"never"`.
        use_sde: Not supported.
        optimizer_class: Class of the optimiser.
        optimizer_kwargs: The optimiser's keyword arguments, except the learning rate. If None,
            `eps=1e-5` for Adam, as in Stable-Baselines3's own policies.
        rules: For a loaded policy, the values of `rlcatalog.config.RULES` that it was built with.
        keywords: Keyword arguments of Stable-Baselines3's own policies: `net_arch`, `activation_fn`
            and `log_std_init` are translated to model config keys with the same meaning; other
            arguments raise an error.

    Raises:
        CatalogError: The parts do not fit, or the algorithm does not support them.
        NotServedError: The algorithm's nets or distributions differ from PPO's.
    """

    #: Whether the algorithm supports the states of a memory.
    recurrent = False
    #: Whether the algorithm passes Box actions through `unscale_action`, instead of clipping them.
    adapts = True

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Any,
        model_config: Mapping[str, Any] | None = None,
        *,
        model: Any = None,
        catalog: Catalog | None = None,
        frozen: str = "auto",
        use_sde: bool = False,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        rules: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        builder = builder_of(self)
        refuse_algorithm(self, type(builder), observation_space)
        if use_sde:
            raise ConfigError(
                "use_sde=True: state-dependent exploration requires Stable-Baselines3's own"
                " distribution. Remove it, or choose a distribution with custom_action_dist in"
                " model_config."
            )
        if optimizer_kwargs is None:
            optimizer_kwargs = {"eps": 1e-5} if optimizer_class is torch.optim.Adam else {}
        # Skip ActorCriticPolicy, whose constructor would build its own networks.
        BasePolicy.__init__(
            self,
            observation_space,
            action_space,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            normalize_images=False,
        )
        self.use_sde = False
        if model is not None:
            origin = origin_of(observation_space, action_space)
            config = origin.config if model_config is None and origin is not None else model_config
            model_config = config_with_model(config, model, "policy_kwargs={{'model_config': {}}}")
        if rules is None:
            is_from_file = lr_schedule is EARLIER_LEARNING_RATE or lr_schedule is no_learning
            rules = UNSAVED_RULES if is_from_file else {}
        origin = origin_of(observation_space, action_space)
        rules = {**rules, **find_rules(builder, origin)}
        self.actor_critic = ActorCritic(
            self,
            model_config,
            catalog,
            keywords,
            algorithm_name(type(builder), self),
            frozen,
            rules,
        )
        keep_rules(builder, self.catalog_policy.config)
        self.model = self.actor_critic.model
        self._unread_masks: UnreadMasks | None = None
        if not self.actor_critic.observer.has_masks:
            self._unread_masks = UnreadMasks(
                getattr(builder, "env", None),
                self.catalog_policy.masks,
                calls_method=calls_action_masks(type(builder)),
            )
        self.optimizer = optimizer_class(self.parameters(), lr=lr_schedule(1), **optimizer_kwargs)  # type: ignore[call-arg]
        for operation in self.actor_critic.model.update_ops():
            self.optimizer.register_step_post_hook(lambda *_, run=operation: run())

    @property
    def catalog_policy(self) -> Policy:
        """The rlcatalog policy with the same weights, for `policy.save(directory)` and
        `policy.act(obs)`.
        """
        return self.actor_critic.policy

    @property
    def squash_output(self) -> bool:
        """Whether Stable-Baselines3 passes actions through `unscale_action`, which it does for
        "squashed" actions; here, the action codec converts them.
        """
        return self.actor_critic.adapts and self.adapts

    def unscale_action(self, scaled_action: Any) -> Any:
        """Convert raw Box actions to the environment's actions with the catalog's codec."""
        return self.actor_critic.adapt(scaled_action)

    def reset_noise(self, n_envs: int = 1) -> None:
        """Raise an error, because the catalog's distributions have no state-dependent
        exploration.
        """
        raise NotServedError(
            "reset_noise: the catalog's distributions have no state-dependent exploration"
            " (use_sde)."
        )

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        """Raise an error, because the catalog's models have no separate features extractor."""
        raise NotServedError(
            f"{type(self).__name__} has no features extractor; its model is `policy.model`, and"
            " its parts are in `policy.catalog_policy`."
        )

    def obs_to_tensor(self, observation: Any) -> tuple[Any, bool]:
        """Convert observations for `predict` to tensors in the space's dtypes; also return whether
        they are a batch.

        Floats in an integer space keep their dtype.
        """
        space: Any = self.observation_space
        tensors, batched = super().obs_to_tensor(observation)
        if isinstance(tensors, dict):
            return {key: _cast(part, space[key]) for key, part in tensors.items()}, batched
        return _cast(tensors, space), batched

    def warn_of_masks(self) -> None:
        """Warn, at the first step, about the environment's action masks that are not read."""
        if self._unread_masks is not None:
            self._unread_masks.warn()
            self._unread_masks = None

    def on_move(self) -> None:
        """Move the parts to the policy's new device."""
        self.actor_critic.moved(self.device)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": no_learning,
            "model_config": self.actor_critic.given,
            "catalog": self.actor_critic.given_catalog,
            "frozen": self.actor_critic.collector.mode,
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
            "rules": rules_of(self.catalog_policy.config),
        }


def no_learning(progress: float) -> float:
    """Return the learning rate 0, for a policy that is loaded without its algorithm."""
    return 0.0


def _cast(tensor: Tensor, space: Any) -> Tensor:
    dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype
    return tensor.to(dtype) if torch.can_cast(tensor.dtype, dtype) else tensor


class WithoutMemory(CatalogBasePolicy):
    """Base class for `CatalogPolicy` and `CatalogMaskablePolicy`; only MaskablePPO passes
    `action_masks`.
    """

    def forward(
        self, obs: Any, deterministic: bool = False, action_masks: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw actions `[B, ...]`, value estimates `[B, 1]` and log densities `[B]`."""
        self.warn_of_masks()
        return self.actor_critic.act(obs, action_masks, deterministic)

    def evaluate_actions(
        self, obs: Any, actions: Tensor, action_masks: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value estimates `[B, 1]`, log densities `[B]` of raw actions, and
        entropies `[B]`.
        """
        actor_critic = self.actor_critic
        logp, entropy = actor_critic.score(
            actor_critic.dist(obs, action_masks, acting=False), actions
        )
        return actor_critic.values(), logp, entropy

    def get_distribution(self, obs: Any, action_masks: Any = None) -> Any:
        """Return the masked distribution over raw actions."""
        return CatalogDistribution(self.actor_critic, self.actor_critic.dist(obs, action_masks))

    def predict_values(self, obs: Any) -> Tensor:
        """Return value estimates `[B, 1]`."""
        inputs = {
            "obs": self.actor_critic.observer.encode(obs),
            "is_training": False,
            "values_only": True,
        }
        self.actor_critic.model(inputs, [], None)
        return self.actor_critic.values()


class CatalogPolicy(WithoutMemory, ActorCriticPolicy):
    """Policy for Stable-Baselines3's PPO and A2C with the catalog's preprocessor, model and
    distribution.

    `PPO(CatalogPolicy, env, policy_kwargs={"model_config": {"fcnet_hiddens": [64, 64]}})`. If
    Stable-Baselines3 does not support the environment's spaces, wrap the environment:
    `for_sb3(env)`. Action masks are read from the observation.

    Example:
        >>> from stable_baselines3 import PPO
        >>> config = {"model_config": {"fcnet_hiddens": [64, 64]}}
        >>> model = PPO(CatalogPolicy, "CartPole-v1", n_steps=64, policy_kwargs=config).learn(64)
    """
