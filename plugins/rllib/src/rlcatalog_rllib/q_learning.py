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
        given = self.model_config
        check_q_served(self.policy, given)
        self.uses_dueling, self.uses_double_q = (
            bool(given.get("dueling")),
            bool(given.get("double_q")),
        )
        if self.uses_dueling:
            need_values(self.policy)
        self.epsilon_schedule = Scheduler(
            fixed_value_or_schedule=given.get("epsilon", 0.0), framework="torch"
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
            anything = torch.multinomial(allowed, num_samples=1).squeeze(-1)
            epsilon: Any = self.epsilon_schedule.get_current_value()
            actions = torch.where(
                torch.rand(len(values), device=values.device) < epsilon, anything, actions
            )
        taken: dict[str, Any] = {Columns.ACTIONS: actions.reshape(rows.shape)}
        if self._state_names:
            taken[Columns.STATE_OUT] = self.state_out(rows, states)
        return taken

    # --- training ---------------------------------------------------------------------------------

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        state = batch.get(Columns.NEXT_STATE_IN, batch.get(Columns.STATE_IN))
        now, later = (
            self.rows(batch),
            self.rows({**batch, Columns.STATE_IN: state}, batch[Columns.NEXT_OBS]),
        )
        found = {QF_PREDS: self._laid_out(self.model, now)}
        if self.uses_double_q:
            with torch.no_grad():
                found[QF_NEXT_PREDS] = self._laid_out(self.model, later)
        found[QF_TARGET_NEXT_PREDS] = self._target_values(later)
        return found

    def compute_q_values(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values `[..., n]` of all actions under `"qf_preds"`."""
        return {QF_PREDS: self._laid_out(self.model, self.rows(batch))}

    def forward_target(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the target network's values `[..., n]` of all actions under `"qf_preds"`."""
        return {QF_PREDS: self._target_values(self.rows(batch))}

    @torch.no_grad()
    def _target_values(self, rows: Rows) -> Tensor:
        return self._laid_out(self.target, rows)

    def _laid_out(self, model: Any, rows: Rows) -> Tensor:
        values, _ = self._values(model, rows, training=True)
        return values.reshape(*rows.shape, values.shape[-1])

    def _values(self, model: Any, rows: Rows, training: bool) -> tuple[Tensor, list[Any]]:
        """Return the values `[N, n]` of all actions, and the new state."""
        outputs, states = self.run_model(model, rows, training, masked=False)
        allowed = None if rows.mask is None else rows.mask.bool()
        if self.uses_dueling:
            mean = outputs.mean(dim=-1, keepdim=True)
            if allowed is not None:
                count = allowed.sum(dim=-1, keepdim=True).clamp(min=1)
                mean = torch.where(allowed, outputs, 0.0).sum(dim=-1, keepdim=True) / count
            outputs = outputs - mean + self.values_of(model, rows).reshape(-1, 1)
        if allowed is not None:
            outputs = torch.where(allowed | ~allowed.any(dim=-1, keepdim=True), outputs, -torch.inf)
        return outputs, states
