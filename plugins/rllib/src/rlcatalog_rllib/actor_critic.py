"""The RLModule for PPO, APPO and IMPALA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import TARGET_NETWORK_ACTION_DIST_INPUTS, ValueFunctionAPI
from torch import Tensor

from rlcatalog import ModelV2
from rlcatalog.actions import params_given
from rlcatalog_rllib.rl_module import CatalogModule, Rows, need_values


class CatalogRLModule(CatalogModule, ValueFunctionAPI):
    """RLModule with a policy and a value estimate, for PPO, APPO and IMPALA.

    When acting, it samples raw actions and also returns their distribution's parameters
    (`action_dist_inputs`). During training, it returns the distribution parameters under the
    current weights, to score the batch's actions. In both cases, a single distribution scores the
    actions, even if an action's components depend on each other.
    """

    def setup(self) -> None:
        """Build the parts; called by Ray."""
        super().setup()
        need_values(self.policy)

    @torch.inference_mode()
    def _act(self, batch: Mapping[str, Any], explore: bool) -> dict[str, Any]:
        rows = self.rows(batch)
        outputs, states = self.run_model_for_acting(rows)
        masked_outputs = self.mask_outputs(outputs, rows)
        actions, logp, dist_params = self.draw(masked_outputs, explore)
        results = {
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: logp,
            Columns.ACTION_DIST_INPUTS: dist_params,
        }
        if not self.has_memory:
            return results
        # A model with memory gets batches of sequences, which `rows` has flattened.
        in_batch_shape: dict[str, Any] = {
            name: value.reshape(*rows.shape, *value.shape[1:]) for name, value in results.items()
        }
        in_batch_shape[Columns.STATE_OUT] = self.state_out(rows, states)
        return in_batch_shape

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        rows = self.rows(batch)
        outputs, _ = self.run_model(self.model, rows, training=True)
        values = self.values_of(self.model, rows)
        params = self._params(self.model, self.mask_outputs(outputs, rows), rows, batch)
        # Ray passes embeddings on to `compute_values`.
        return {Columns.ACTION_DIST_INPUTS: params, Columns.EMBEDDINGS: values}

    def compute_values(self, batch: Mapping[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return value estimates with the batch's leading shape.

        Args:
            batch: The batch.
            embeddings: The values from the same forward pass, which `forward_train` returns under
                this name.
        """
        if embeddings is not None:
            return embeddings
        rows = self.rows(batch)
        self.run_model(self.model, rows, training=True)  # the model keeps the values of this pass
        return self.values_of(self.model, rows)

    @torch.no_grad()
    def forward_target(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the target network's distribution parameters, which score the batch's actions."""
        rows = self.rows(batch)
        outputs, _ = self.run_model(self.target, rows, training=True)
        params = self._params(self.target, self.mask_outputs(outputs, rows), rows, batch)
        return {TARGET_NETWORK_ACTION_DIST_INPUTS: params}

    def _params(
        self, model: ModelV2, outputs: Tensor, rows: Rows, batch: Mapping[str, Any]
    ) -> Tensor:
        """Return distribution parameters `[..., n]`, which score the batch's actions.

        Args:
            model: The model.
            outputs: The model's outputs `[N, size]` with masks applied.
            rows: The batch as rows.
            batch: The batch.
        """
        params = outputs
        if not self._outputs_are_params:
            actions = batch[Columns.ACTIONS]
            action_shape = actions.shape[len(rows.shape) :]
            dist = self.policy.dist_class(outputs, model)
            params = params_given(dist, actions.reshape(len(outputs), *action_shape))
        return params.reshape(*rows.shape, params.shape[-1])
