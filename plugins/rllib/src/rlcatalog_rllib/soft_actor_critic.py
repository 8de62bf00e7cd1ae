"""The RLModule for SAC, with a catalog actor and critics that have trunks of the same kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.sac import sac_learner as sac
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import QNetAPI
from torch import Tensor, nn

from rlcatalog import Policy
from rlcatalog.catalog import build_model
from rlcatalog.models import copying_instances
from rlcatalog_rllib.refusals import check_soft_served
from rlcatalog_rllib.rl_module import CatalogModule, Rows
from rlcatalog_torch import flat_sample


class ChoiceCritic(nn.Module):
    """Critic for discrete actions: a model with the actor's architecture, which outputs the values
    of all actions.

    Args:
        policy: The policy from whose parts the critic's model is built.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.model: Any = policy.make_model()

    def forward(self, obs: Tensor, actions: Tensor | None = None) -> Tensor:
        """Return the values `[B, n]`."""
        values: Tensor = self.model({"obs": obs, "is_training": True}, [], None)[0]
        return values


class NumberCritic(nn.Module):
    """Critic for continuous actions, which it concatenates with a trunk's features before another
    hidden layer.

    Args:
        policy: The policy from whose parts the critic's trunk is built.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        found, space = policy.resolution, policy.preprocessor.observation_space
        parts = {"trunk": found.part("trunk")}
        with copying_instances():
            trunk: Any = build_model(parts, space, None, None, found.config, "torch")
        self.trunk = trunk
        width, codec = int(trunk.num_outputs), policy.action_codec
        low, high = (torch.as_tensor(np.asarray(bound, np.float32)) for bound in codec.limits)
        self.register_buffer("middle", (high + low) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)
        self.joint = nn.Sequential(
            nn.Linear(width + codec.width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the values `[B]` of raw actions `[B, width]`, after scaling them to [-1, 1]."""
        features = self.trunk({"obs": obs, "is_training": True}, [], None)[0].flatten(1)
        scaled = (actions.reshape(len(features), -1) - self.get_buffer("middle")) / self.get_buffer(
            "reach"
        )
        values: Tensor = self.joint(torch.cat([features, scaled], 1))[:, 0]
        return values


class CatalogSACModule(CatalogModule, QNetAPI):
    """RLModule for SAC with an actor and one or two critics (Haarnoja et al. 2018; discrete:
    Christodoulou 2019).

    The actor is the catalog's model and distribution, which must be bounded; the model's value
    branch is not used. As in RLlib's module, densities refer to actions between -1 and 1, so that
    the target entropy keeps its meaning.
    """

    def setup(self) -> None:
        """Build the parts; called by Ray."""
        super().setup()
        check_soft_served(self.policy)
        self.twin_q = bool(self.model_config.get("twin_q", True))
        # Ray's learner reads the optimisers' parameters under these names.
        self.pi, self.qf, self.qf_twin = nn.Identity(), nn.Identity(), nn.Identity()
        self._log_scale = 0.0
        if not self.policy.action_codec.scalar:
            low, high = (np.asarray(bound, np.float64) for bound in self.policy.action_codec.limits)
            self._log_scale = float(np.log((high - low) / 2).sum())
        if not self.inference_only:
            critic = ChoiceCritic if self.policy.action_codec.scalar else NumberCritic
            self.critics = nn.ModuleList(critic(self.policy) for _ in range(1 + self.twin_q))

    @property
    def pi_encoder(self) -> Any:
        """The actor, under the name that Ray's learner reads."""
        return _Trained(self.model)

    @property
    def qf_encoder(self) -> Any:
        """The first critic, under the name that Ray's learner reads."""
        return _Trained(self.critics[0])

    @property
    def qf_twin_encoder(self) -> Any:
        """The second critic, under the name that Ray's learner reads."""
        return _Trained(self.critics[1])

    # --- acting -----------------------------------------------------------------------------------

    @torch.inference_mode()
    def _act(self, batch: Mapping[str, Any], explore: bool) -> dict[str, Any]:
        outputs, _ = self.run_model(self.model, self.rows(batch), training=False)
        return {Columns.ACTIONS: self.draw(outputs, explore)[0]}

    def _dist(self, rows: Rows, training: bool) -> Any:
        outputs, _ = self.run_model(self.model, rows, training)
        return self.policy.dist_class(outputs, self.model)

    # --- training ---------------------------------------------------------------------------------

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        now, later = self.rows(batch), self.rows(batch, batch[Columns.NEXT_OBS])
        forward = self._choices if self.policy.action_codec.scalar else self._numbers
        return forward(batch, now, later)

    def _numbers(self, batch: Mapping[str, Any], now: Rows, later: Rows) -> dict[str, Any]:
        found = dict(
            zip(
                (sac.QF_PREDS, sac.QF_TWIN_PREDS),
                self._each(now.obs, batch[Columns.ACTIONS]),
                strict=False,
            )
        )
        dist = self._dist(now, training=True)
        drawn = flat_sample(dist.rsample())
        found["logp_resampled"] = dist.logp(drawn) + self._log_scale
        # The actor's gradient passes through the critics, but not into their weights.
        self.critics.requires_grad_(False)
        found["q_curr"] = _smallest(self._each(now.obs, drawn))
        self.critics.requires_grad_(True)
        with torch.no_grad():
            dist = self._dist(later, training=True)
            following = flat_sample(dist.sample())
            found["logp_next_resampled"] = dist.logp(following) + self._log_scale
            found["q_target_next"] = _smallest(self._each(later.obs, following, target=True))
        return found

    def _choices(self, batch: Mapping[str, Any], now: Rows, later: Rows) -> dict[str, Any]:
        found = dict(zip((sac.QF_PREDS, sac.QF_TWIN_PREDS), self._each(now.obs), strict=False))
        found[sac.ACTION_LOG_PROBS] = self._log_probs(now)
        found[sac.ACTION_PROBS] = found[sac.ACTION_LOG_PROBS].exp()
        with torch.no_grad():
            found[sac.ACTION_LOG_PROBS_NEXT] = self._log_probs(later)
            found[sac.ACTION_PROBS_NEXT] = found[sac.ACTION_LOG_PROBS_NEXT].exp()
            found[sac.QF_TARGET_NEXT] = _smallest(self._each(later.obs, target=True))
        return found

    def _log_probs(self, rows: Rows) -> Tensor:
        outputs, _ = self.run_model(self.model, rows, training=True)
        # Masked logits are the lowest finite number, so that masked actions have probability 0
        # without NaN.
        return torch.log_softmax(outputs, -1)

    def _each(
        self, obs: Tensor, actions: Tensor | None = None, target: bool = False
    ) -> list[Tensor]:
        return [critic(obs, actions) for critic in (self.target if target else self.critics)]

    def compute_q_values(self, batch: Mapping[str, Any]) -> Any:
        """Return the smaller of the critics' values: `[B]` for the batch's actions, or `[B, n]` for
        all actions.
        """
        return self._q_values(batch)

    def forward_target(self, batch: Mapping[str, Any]) -> Any:
        """Return the values that `compute_q_values` returns, but from the target networks."""
        return self._q_values(batch, target=True)

    def _q_values(self, batch: Mapping[str, Any], target: bool = False) -> Tensor:
        actions = None if self.policy.action_codec.scalar else batch[Columns.ACTIONS]
        return _smallest(self._each(self.rows(batch).obs, actions, target))

    def make_target_networks(self) -> None:
        """Copy the critics; called by Ray's learner."""
        self.target = nn.ModuleList(make_target_network(critic) for critic in self.critics)

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """Return the critics and their copies."""
        return list(zip(self.critics, self.target, strict=True))

    def get_non_inference_attributes(self) -> list[str]:
        """Return the attributes that acting does not need."""
        return ["target", "critics"]


class _Trained:
    """View of a net's parameters without its value branch, for Ray's learner."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def parameters(self) -> Iterator[nn.Parameter]:
        for name, weight in self._model.named_parameters():
            if "value" not in name.split("."):
                yield weight


def _smallest(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.minimum(*values)
