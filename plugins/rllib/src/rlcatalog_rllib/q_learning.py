"""The RLModule for DQN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.algorithms.dqn.default_dqn_rl_module import (
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_TARGET_NEXT_PREDS,
)
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import QNetAPI
from ray.rllib.utils.schedules.scheduler import Scheduler
from torch import Tensor

from rlcatalog_rllib.refusals import check_q_served
from rlcatalog_rllib.rl_module import CatalogModule, Rows, need_values
from rlcatalog_torch import TorchModelV2, dueling_values


class CatalogQModule(CatalogModule, QNetAPI):
    """RLModule for DQN with a catalog model.

    The model's outputs are the action values. With DQN's `dueling`, the outputs are advantages, to
    which the model's value estimate is added: Q(s, a) = V(s) + A(s, a) - mean of A(s, ·) over the
    allowed actions. In both cases, the exported policy's most likely action is the one with the
    highest value. A masked action has the value -inf, as Ray's learner expects.
    """

    def setup(self) -> None:
        """Build the parts; called by Ray."""
        super().setup()
        check_q_served(self.policy, self.model_config)
        # DQN's settings, which Ray adds to the model config.
        self.uses_dueling = bool(self.model_config.get("dueling"))
        self.uses_double_q = bool(self.model_config.get("double_q"))
        if self.uses_dueling:
            need_values(self.policy)
        self.epsilon_schedule = Scheduler(
            fixed_value_or_schedule=self.model_config.get("epsilon", 0.0), framework="torch"
        )

    # --- acting -----------------------------------------------------------------------------------

    def _forward_exploration(
        self, batch: Mapping[str, Any], t: int = 0, **kwargs: Any
    ) -> dict[str, Any]:
        self.epsilon_schedule.update(t)
        return self._act(batch, explore=True)

    @torch.inference_mode()
    def _act(self, batch: Mapping[str, Any], explore: bool) -> dict[str, Any]:
        rows = self.rows(batch)
        values, states = self._values(self.model, rows, training=False)
        actions = values.argmax(dim=-1)
        if explore:
            allowed = torch.ones_like(values) if rows.mask is None else rows.mask.float()
            random_actions = torch.multinomial(allowed, num_samples=1).squeeze(-1)
            epsilon: Any = self.epsilon_schedule.get_current_value()
            is_random = torch.rand(len(values), device=values.device) < epsilon
            actions = torch.where(is_random, random_actions, actions)
        results: dict[str, Any] = {Columns.ACTIONS: actions.reshape(rows.shape)}
        if self.has_memory:
            results[Columns.STATE_OUT] = self.state_out(rows, states)
        return results

    # --- training ---------------------------------------------------------------------------------

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        # A replayed batch has the state at the next observations only if Ray stored it.
        next_state = batch.get(Columns.NEXT_STATE_IN, batch.get(Columns.STATE_IN))
        next_batch = {**batch, Columns.STATE_IN: next_state}
        rows = self.rows(batch)
        next_rows = self.rows(next_batch, batch[Columns.NEXT_OBS])
        results = {QF_PREDS: self._values_in_batch_shape(self.model, rows)}
        if self.uses_double_q:
            with torch.no_grad():
                results[QF_NEXT_PREDS] = self._values_in_batch_shape(self.model, next_rows)
        results[QF_TARGET_NEXT_PREDS] = self._target_values(next_rows)
        return results

    def compute_q_values(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values `[..., n]` of all actions under `"qf_preds"`."""
        return {QF_PREDS: self._values_in_batch_shape(self.model, self.rows(batch))}

    def forward_target(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the target network's values `[..., n]` of all actions under `"qf_preds"`."""
        return {QF_PREDS: self._target_values(self.rows(batch))}

    @torch.no_grad()
    def _target_values(self, rows: Rows) -> Tensor:
        return self._values_in_batch_shape(self.target, rows)

    def _values_in_batch_shape(self, model: TorchModelV2, rows: Rows) -> Tensor:
        """Return the values `[..., n]` of all actions for a training batch."""
        values, _ = self._values(model, rows, training=True)
        return values.reshape(*rows.shape, values.shape[-1])

    def _values(
        self, model: TorchModelV2, rows: Rows, *, training: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the values `[N, n]` of all actions, and the new state."""
        values, states = self.run_model(model, rows, training=training)
        allowed = None if rows.mask is None else rows.mask.bool()
        if self.uses_dueling:
            values = dueling_values(values, self.values_of(model, rows), allowed)
        if allowed is not None:
            # Rows of padding allow nothing. They keep their values, so that not all are -inf.
            is_padding = ~allowed.any(dim=-1, keepdim=True)
            values = torch.where(allowed | is_padding, values, -torch.inf)
        return values, states
