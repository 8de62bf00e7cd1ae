"""Policies for sb3-contrib's QR-DQN and TQC, which learn quantiles of the return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sb3_contrib
import torch
from sb3_contrib.tqc.policies import TQCPolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor

from rlcatalog import ModelV2
from rlcatalog.errors import NotServedError
from rlcatalog_sb3.action_critics import CatalogCritics, WithCatalogCritics
from rlcatalog_sb3.observations import Observer
from rlcatalog_sb3.q_learning import CatalogQPolicy, MaskedExploration, QNetwork, mask_values
from rlcatalog_sb3.spaces import Space


class QuantileNetwork(QNetwork):
    """A catalog model whose outputs are quantiles of the return after each action.

    Args:
        model: The model.
        observer: Encodes observations, and reads their masks.
        n_quantiles: Number of quantiles for each action.
    """

    def __init__(self, model: ModelV2, observer: Observer, n_quantiles: int) -> None:
        super().__init__(model, observer, dueling=False)
        self.n_quantiles = n_quantiles

    def forward(self, obs: PyTorchObs) -> Tensor:
        """Return the quantiles `[B, n_quantiles, n]`; those of a forbidden action are the lowest
        finite number.
        """
        outputs = self.outputs(obs)
        quantiles = outputs.reshape(len(outputs), self.n_quantiles, -1)
        allowed = self.observer.stored_mask(obs)
        if allowed is not None:
            allowed = allowed.unsqueeze(1)  # the same for all quantiles
        return mask_values(quantiles, allowed)


class CatalogQuantilePolicy(CatalogQPolicy):
    """Policy for `rlcatalog_sb3.QRDQN`, whose whole quantile network comes from the catalog.

    The network has the outputs of the distribution `quantiles`; see `CatalogQPolicy`.

    Args:
        observation_space: Stable-Baselines3's observation space.
        action_space: Stable-Baselines3's action space.
        lr_schedule: Learning rate as a function of the remaining progress.
        model_config: The model config.
        n_quantiles: Number of quantiles for each action.
        dueling: Not supported.
        others: Further arguments of `CatalogQPolicy`.

    Example:
        >>> from rlcatalog_sb3 import QRDQN
        >>> config = {"model_config": {"fcnet_hiddens": [64, 64]}, "n_quantiles": 50}
        >>> model = QRDQN("CatalogQuantilePolicy", "CartPole-v1", policy_kwargs=config).learn(200)
    """

    algorithm_name = "QRDQN"

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        lr_schedule: Schedule,
        model_config: Mapping[str, Any] | None = None,
        *,
        n_quantiles: int = 200,
        dueling: bool = False,
        **others: Any,
    ) -> None:
        if dueling:
            raise NotServedError(
                "dueling: a quantile network has no dueling form here. Remove it, or use DQN with"
                " CatalogQPolicy."
            )
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            model_config,
            defaults={"custom_action_dist": "quantiles", "num_quantiles": n_quantiles},
            **others,
        )

    @property
    def n_quantiles(self) -> int:
        """Number of quantiles for each action."""
        return int(self.catalog_policy.config["num_quantiles"])

    @property
    def outputs_per_action(self) -> int:
        """Number of outputs of the network for each action."""
        return self.n_quantiles

    @property
    def quantile_net(self) -> QNetwork:
        """The network, under sb3-contrib's name."""
        return self.q_net

    @property
    def quantile_net_target(self) -> QNetwork:
        """The network's copy that computes targets, under sb3-contrib's name."""
        return self.q_net_target

    def make_network(self, model: ModelV2) -> QNetwork:
        """Return a network around a model."""
        return QuantileNetwork(model, self.actor_critic.observer, self.n_quantiles)

    def action_values(self, obs: PyTorchObs) -> Tensor:
        """Return the means `[B, n]` of each action's quantiles."""
        return super().action_values(obs).mean(dim=1)

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        return {**super().constructor_arguments(), "n_quantiles": self.n_quantiles}


class QRDQN(MaskedExploration, sb3_contrib.QRDQN):
    """sb3-contrib's QR-DQN, whose random actions obey masks.

    Its arguments, its training and its files are those of `sb3_contrib.QRDQN`.
    """


class CatalogQuantileCritics(CatalogCritics):
    """Several critics whose outputs are quantiles of the return, for TQC."""

    @property
    def quantiles_total(self) -> int:
        """Number of quantiles of all critics."""
        return sum(critic.output.out_features for critic in self.critics)  # type: ignore[union-attr,misc]

    def forward(self, obs: PyTorchObs, actions: Tensor) -> Tensor:
        """Return the quantiles `[B, n_critics, n_quantiles]`."""
        return torch.stack(self.outputs(obs, actions), dim=1)


class CatalogTQCPolicy(WithCatalogCritics, TQCPolicy):  # type: ignore[misc]  # other critics
    """Policy for sb3-contrib's TQC with an actor's trunk and critics from the catalog.

    Args:
        observation_space: Stable-Baselines3's observation space.
        action_space: Stable-Baselines3's action space.
        lr_schedule: Learning rate as a function of the remaining progress.
        model_config: The model config, with the critics' config under `critic`.
        n_quantiles: Number of quantiles of each critic.
        others: Further arguments of `CatalogSACPolicy`.
    """

    critics_class = CatalogQuantileCritics

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        lr_schedule: Schedule,
        model_config: Mapping[str, Any] | None = None,
        *,
        n_quantiles: int = 25,
        **others: Any,
    ) -> None:
        # A plain number, which may be set before the constructor of the module.
        self.n_quantiles = n_quantiles
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            model_config,
            n_quantiles=n_quantiles,
            **others,
        )

    @property
    def outputs_per_critic(self) -> int:
        """Number of outputs of each critic."""
        return self.n_quantiles

    def constructor_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal policy."""
        return {**super().constructor_arguments(), "n_quantiles": self.n_quantiles}
