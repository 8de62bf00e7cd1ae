"""Policies for SAC and TD3 with critics from the catalog."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor, nn

from rlcatalog import Catalog
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_sb3.features import CatalogExtractor
from rlcatalog_sb3.observations import make_encoder, make_flat_encoder
from rlcatalog_sb3.policies import no_learning
from rlcatalog_sb3.private_api import SavablePolicy
from rlcatalog_sb3.spaces import OFF_POLICY_INIT, Lookup, Space
from rlcatalog_torch import ActionCritic, build_action_critic


class CatalogCritics(nn.Module):
    """Several critics from the catalog, which Stable-Baselines3 calls as it calls its own.

    Args:
        critics: The critics.
        encode: Encodes Stable-Baselines3's observations.
    """

    def __init__(self, critics: list[ActionCritic], encode: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.critics = nn.ModuleList(critics)
        self.n_critics = len(critics)
        self._encode = encode

    def forward(self, obs: PyTorchObs, actions: Tensor) -> Any:
        """Return each critic's values `[B, 1]` for actions that are scaled to [-1, 1]."""
        return tuple(self.outputs(obs, actions))

    def q1_forward(self, obs: PyTorchObs, actions: Tensor) -> Tensor:
        """Return the values `[B, 1]` of the first critic."""
        values: Tensor = self.critics[0](self._encode(obs), actions)
        return values

    def outputs(self, obs: PyTorchObs, actions: Tensor) -> list[Tensor]:
        """Return each critic's outputs `[B, num_outputs]`."""
        encoded = self._encode(obs)
        return [critic(encoded, actions) for critic in self.critics]

    def set_training_mode(self, mode: bool) -> None:
        """Switch dropout and batch statistics; called by Stable-Baselines3."""
        self.train(mode)


class WithCatalogCritics(SavablePolicy):
    """Base class for policies of SAC, TD3 and TQC; do not use it directly.

    The actor is a catalog trunk with Stable-Baselines3's output layers. Each critic is a network
    for the observation and the action, built from `critic` in the model config.

    Args:
        observation_space: Stable-Baselines3's observation space.
        action_space: Stable-Baselines3's action space.
        lr_schedule: Learning rate as a function of the remaining progress.
        model_config: The actor's model config; its key `critic` is the config of the critics. If
            None, the config that the environment was flattened with, or the defaults.
        catalog: The catalog for the parts. If None, the catalog that the environment was flattened
            with, or the process's.
        n_critics: Number of critics.
        net_arch: Not supported; the config says which layers there are.
        features_extractor_class: Not supported; the actor's trunk is the catalog's.
        others: Further arguments of Stable-Baselines3's policy.

    Raises:
        CatalogError: The parts do not fit, or the algorithm does not support them.
    """

    critics_class: type[CatalogCritics] = CatalogCritics

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        lr_schedule: Schedule,
        model_config: Mapping[str, Any] | None = None,
        *,
        catalog: Catalog | None = None,
        n_critics: int = 2,
        net_arch: Any = None,
        features_extractor_class: Any = None,
        **others: Any,
    ) -> None:
        name = type(self).__name__
        if net_arch:
            raise ConfigError(
                f"policy_kwargs: net_arch={net_arch!r}: {name} takes its layers from the model"
                " config. Set fcnet_hiddens for the actor, and critic={'fcnet_hiddens': [...]} for"
                " the critics."
            )
        if features_extractor_class is not None:
            raise ConfigError(
                f"policy_kwargs: features_extractor_class: the trunk of {name} comes from the"
                " catalog. Set custom_model in the model config."
            )
        if others.get("share_features_extractor"):
            raise NotServedError(
                f"share_features_extractor: the critics of {name} see the action from their first"
                " layer on, so they share no layer with the actor. Remove it."
            )
        lookup = Lookup.of(observation_space, action_space, model_config, catalog)
        actor_config = dict(lookup.config or {})
        # Plain data, which may be set before the constructor of the module.
        self.given_critic_config = actor_config.pop("critic", None) or {}
        whole_config = {**actor_config, "critic": self.given_critic_config}
        self.critic_config = lookup.catalog.action_critic_config(whole_config)
        self.actor_config = actor_config
        self.catalog = catalog
        self.n_critics = n_critics
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=[],  # the trunk has the layers
            features_extractor_class=CatalogExtractor,
            features_extractor_kwargs={"model_config": actor_config, "catalog": catalog},
            n_critics=n_critics,
            **others,
        )

    def make_critic(self, features_extractor: None = None) -> CatalogCritics:
        """Build the critics; Stable-Baselines3 calls it once more for the target networks."""
        extractor = self._extractor
        # Stable-Baselines3 passes actions that are scaled to [-1, 1].
        scaled_actions = spaces.Box(-1.0, 1.0, (math.prod(self.action_space.shape or ()),))
        critics = [
            build_action_critic(
                extractor.env_observation_space,
                scaled_actions,
                self.critic_config,
                num_outputs=self.outputs_per_critic,
                catalog=extractor.catalog,
                defaults={**OFF_POLICY_INIT, **extractor.rules},
            )
            for _ in range(self.n_critics)
        ]
        return self.critics_class(critics, self._encoder_of_observations(extractor)).to(self.device)

    @property
    def _extractor(self) -> CatalogExtractor:
        """The actor's trunk, with the environment's spaces and the catalog."""
        actor: Any = self.actor
        extractor: CatalogExtractor = actor.features_extractor
        return extractor

    @property
    def outputs_per_critic(self) -> int:
        """Number of outputs of each critic."""
        return 1

    def _encoder_of_observations(self, extractor: CatalogExtractor) -> Callable[[Any], Tensor]:
        """Return a function that encodes Stable-Baselines3's observations for the critics."""
        lookup = Lookup.of(
            self.observation_space, self.action_space, self.actor_config, self.catalog
        )
        if lookup.origin is not None:
            return make_flat_encoder(extractor.preprocessor.shape, has_masks=False)
        return make_encoder(
            extractor.preprocessor,
            self.observation_space,
            lookup.layout,
            extractor.preprocessor.transform_batch,
        )

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        model_config = {
            **self._extractor.resolved_rules,
            **self.actor_config,
            "critic": self.given_critic_config,
        }
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": no_learning,  # the algorithm is not saved
            "model_config": model_config,
            "catalog": self.catalog,
            "n_critics": self.n_critics,
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
        }


class CatalogSACPolicy(WithCatalogCritics, SACPolicy):  # type: ignore[misc]  # other critics
    """Policy for Stable-Baselines3's SAC with an actor's trunk and critics from the catalog.

    `SAC(CatalogSACPolicy, env, policy_kwargs={"model_config": {"fcnet_hiddens": [64, 64],
    "critic": {"fcnet_hiddens": [256, 256]}}})`.
    """


class CatalogTD3Policy(WithCatalogCritics, TD3Policy):  # type: ignore[misc]  # other critics
    """Policy for Stable-Baselines3's TD3 with an actor's trunk and critics from the catalog."""
