"""The RLModule for SAC, with an actor and critics from the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.sac import sac_learner as sac
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import QNetAPI
from torch import Tensor, nn

from rlcatalog import ModelV2, Policy
from rlcatalog.catalog import build_model
from rlcatalog.models import copying_instances
from rlcatalog_rllib.recipe import Recipe, build_critic_of_actions
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
        return _outputs_of(self.model, obs)


class NumberCritic(nn.Module):
    """Critic for continuous actions, which it concatenates with a trunk's features before another
    hidden layer.

    Args:
        policy: The policy from whose parts the critic's trunk is built.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        # If the user's model is an instance, critics must not share its weights.
        with copying_instances():
            trunk: Any = build_model(
                {"trunk": policy.resolution.part("trunk")},
                policy.preprocessor.observation_space,
                action_space=None,
                num_outputs=None,  # only the trunk's features, without an output layer
                config=policy.resolution.config,
                framework="torch",
            )
        self.trunk = trunk
        codec = policy.action_codec
        low, high = (torch.as_tensor(np.asarray(bound, np.float32)) for bound in codec.limits)
        # To scale actions from [low, high] to [-1, 1].
        self.register_buffer("middle", (high + low) / 2, persistent=False)
        self.register_buffer("half_width", (high - low) / 2, persistent=False)
        width = int(trunk.num_outputs)
        self.joint = nn.Sequential(
            nn.Linear(width + codec.width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the values `[B]` of raw actions `[B, width]`, after scaling them to [-1, 1]."""
        features = _outputs_of(self.trunk, obs).flatten(1)
        rows = actions.reshape(len(features), -1)
        scaled = (rows - self.get_buffer("middle")) / self.get_buffer("half_width")
        values: Tensor = self.joint(torch.cat([features, scaled], dim=1))
        return values[:, 0]


def _outputs_of(model: ModelV2, obs: Tensor) -> Tensor:
    """Run a model without memory for training, and return its outputs `[B, n]`."""
    no_state: list[Tensor] = []
    no_sequence_lengths = None
    outputs: Tensor = model({"obs": obs, "is_training": True}, no_state, no_sequence_lengths)[0]
    return outputs


class CatalogSACModule(CatalogModule, QNetAPI):
    """RLModule for SAC with an actor and one or two critics (Haarnoja et al. 2018; discrete:
    Christodoulou 2019).

    The actor is the catalog's model and distribution, which must be bounded; the model's value
    branch is not used. The key `critic` is the model config of the critics; without it, they have
    trunks of the actor's kind. As in RLlib's module, densities refer to actions between -1 and 1,
    so that the target entropy keeps its meaning.
    """

    def setup(self) -> None:
        """Build the parts; called by Ray."""
        super().setup()
        check_soft_served(self.policy)
        self.twin_q = bool(self.model_config.get("twin_q", True))
        # Each of the learner's optimisers gets the parameters of two attributes, such as `pi` and
        # `pi_encoder`. Here, the encoders have all of them.
        self.pi = nn.Identity()
        self.qf = nn.Identity()
        self.qf_twin = nn.Identity()
        self._has_choices = self.policy.action_codec.scalar
        #: What the logarithm of a density changes by if actions are scaled to [-1, 1].
        self._log_scale = 0.0
        if not self._has_choices:
            low, high = (np.asarray(bound, np.float64) for bound in self.policy.action_codec.limits)
            self._log_scale = float(np.log((high - low) / 2).sum())
        if not self.inference_only:
            critic_count = 2 if self.twin_q else 1
            self.critics = nn.ModuleList(self._make_critic() for _ in range(critic_count))
            self.critics.eval()  # until a learner trains them, like the model

    def read_recipe(self) -> Recipe:
        """Return the recipe for the actor; the key `critic` is the config of the critics."""
        return super().read_recipe().with_critics_apart()

    def _make_critic(self) -> nn.Module:
        """Return a critic with new weights."""
        if self.recipe.action_critics is not None:
            return build_critic_of_actions(self.recipe, self.policy)
        if self._has_choices:
            return ChoiceCritic(self.policy)
        return NumberCritic(self.policy)

    @property
    def pi_encoder(self) -> Any:
        """The actor's weights, under the name that Ray's learner reads."""
        return _Weights(_weights_of_actor(self.policy))

    @property
    def qf_encoder(self) -> Any:
        """The first critic's weights, under the name that Ray's learner reads."""
        return _Weights(_weights_of_critic(self.critics[0]))

    @property
    def qf_twin_encoder(self) -> Any:
        """The second critic's weights, under the name that Ray's learner reads."""
        return _Weights(_weights_of_critic(self.critics[1]))

    # --- acting -----------------------------------------------------------------------------------

    @torch.inference_mode()
    def _act(self, batch: Mapping[str, Any], explore: bool) -> dict[str, Any]:
        rows = self.rows(batch)
        outputs, _ = self.run_model(self.model, rows, training=False)
        actions, _, _ = self.draw(self.mask_outputs(outputs, rows), explore)
        return {Columns.ACTIONS: actions}

    # --- training ---------------------------------------------------------------------------------

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        rows = self.rows(batch)
        next_rows = self.rows(batch, batch[Columns.NEXT_OBS])
        if not self.critics.training:
            self.critics.train()  # see `run_model`
        if self._has_choices:
            return self._train_choices(rows, next_rows)
        return self._train_numbers(rows, next_rows, batch[Columns.ACTIONS])

    def _train_numbers(self, rows: Rows, next_rows: Rows, actions: Tensor) -> dict[str, Any]:
        """Return what Ray's loss for continuous actions reads.

        Args:
            rows: The batch's observations.
            next_rows: The observations after the actions.
            actions: The batch's raw actions.
        """
        results = _named_values(_values_of_critics(self.critics, rows.obs, actions))
        dist = self._dist(rows)
        sample = dist.rsample()
        # In this form, because a distribution knows its own samples, and scores them more exactly.
        results["logp_resampled"] = dist.logp(sample) + self._log_scale
        with _without_weight_gradients(self.critics):
            values = _values_of_critics(self.critics, rows.obs, flat_sample(sample))
            results["q_curr"] = _smallest(values)
        with torch.no_grad():
            next_dist = self._dist(next_rows)
            next_sample = next_dist.sample()
            results["logp_next_resampled"] = next_dist.logp(next_sample) + self._log_scale
            next_actions = flat_sample(next_sample)
            next_values = _values_of_critics(self.target, next_rows.obs, next_actions)
            results["q_target_next"] = _smallest(next_values)
        return results

    def _train_choices(self, rows: Rows, next_rows: Rows) -> dict[str, Any]:
        """Return what Ray's loss for discrete actions reads.

        Args:
            rows: The batch's observations.
            next_rows: The observations after the actions.
        """
        results = _named_values(_values_of_critics(self.critics, rows.obs))
        log_probs = self._log_probs(rows)
        results[sac.ACTION_LOG_PROBS] = log_probs
        results[sac.ACTION_PROBS] = log_probs.exp()
        with torch.no_grad():
            next_log_probs = self._log_probs(next_rows)
            results[sac.ACTION_LOG_PROBS_NEXT] = next_log_probs
            results[sac.ACTION_PROBS_NEXT] = next_log_probs.exp()
            next_values = _values_of_critics(self.target, next_rows.obs)
            results[sac.QF_TARGET_NEXT] = _smallest(next_values)
        return results

    def _dist(self, rows: Rows) -> Any:
        """Return the actor's distribution, with gradients."""
        outputs, _ = self.run_model(self.model, rows, training=True)
        return self.policy.dist_class(self.mask_outputs(outputs, rows), self.model)

    def _log_probs(self, rows: Rows) -> Tensor:
        """Return the log probabilities `[B, n]` of all actions, with gradients."""
        outputs, _ = self.run_model(self.model, rows, training=True)
        # Masked logits are the lowest finite number, so that masked actions have probability 0
        # without NaN.
        return torch.log_softmax(self.mask_outputs(outputs, rows), dim=-1)

    def compute_q_values(self, batch: Mapping[str, Any]) -> Any:
        """Return the smaller of the critics' values: `[B]` for the batch's actions, or `[B, n]` for
        all actions.
        """
        return self._smallest_values(self.critics, batch)

    def forward_target(self, batch: Mapping[str, Any]) -> Any:
        """Return the values that `compute_q_values` returns, but from the target networks."""
        return self._smallest_values(self.target, batch)

    def _smallest_values(self, critics: Iterable[nn.Module], batch: Mapping[str, Any]) -> Tensor:
        """Return the smaller of some critics' values for a batch; see `compute_q_values`."""
        actions = None if self._has_choices else batch[Columns.ACTIONS]
        return _smallest(_values_of_critics(critics, self.rows(batch).obs, actions))

    def make_target_networks(self) -> None:
        """Copy the critics; called by Ray's learner."""
        self.target = nn.ModuleList(make_target_network(critic) for critic in self.critics)

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """Return the critics and their copies."""
        return list(zip(self.critics, self.target, strict=True))

    def get_non_inference_attributes(self) -> list[str]:
        """Return the attributes that acting does not need."""
        return ["target", "critics"]


class _Weights:
    """Weights in the form in which Ray's learner reads a module's parameters."""

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        self._weights = list(weights)

    def parameters(self) -> Iterator[nn.Parameter]:
        return iter(self._weights)


def _weights_of_actor(policy: Policy) -> list[nn.Parameter]:
    """Return the weights of a policy's model without its value layer, in the model's order."""
    computes_actions: set[nn.Parameter] = set()
    for group in policy.parameter_groups():
        if group["name"] in ("trunk", "head"):
            computes_actions.update(group["params"])
    weights = []
    model: Any = policy.model  # a module of PyTorch
    for name, weight in model.named_parameters():
        # A user's trunk may have a layer of this name, too.
        if "value" not in name.split(".") or weight in computes_actions:
            weights.append(weight)
    return weights


def _weights_of_critic(critic: nn.Module) -> list[nn.Parameter]:
    """Return a critic's weights, without the value branch of a `ChoiceCritic`'s model."""
    weights = []
    for name, weight in critic.named_parameters():
        is_of_value = isinstance(critic, ChoiceCritic) and "value" in name.split(".")
        if not is_of_value:
            weights.append(weight)
    return weights


@contextmanager
def _without_weight_gradients(critics: nn.Module) -> Iterator[None]:
    """Context manager in which gradients pass through critics, but not into their weights."""
    # A module of the user may have weights that never learn.
    learning = [weight for weight in critics.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def _values_of_critics(
    critics: Iterable[nn.Module], obs: Tensor, actions: Tensor | None = None
) -> list[Tensor]:
    """Return each critic's values `[B]` for raw actions, or `[B, n]` for all actions if they are
    choices.
    """
    values = [critic(obs, actions) for critic in critics]
    if actions is None:
        return values
    # An `ActionCritic` returns the values of actions as `[B, 1]`.
    return [value.reshape(len(obs)) for value in values]


def _named_values(values: list[Tensor]) -> dict[str, Any]:
    """Return the values of one or two critics under the names that Ray's loss reads."""
    names = (sac.QF_PREDS, sac.QF_TWIN_PREDS)
    return dict(zip(names, values, strict=False))


def _smallest(values: list[Tensor]) -> Tensor:
    """Return the smaller of the values of one or two critics."""
    return values[0] if len(values) == 1 else torch.minimum(*values)
