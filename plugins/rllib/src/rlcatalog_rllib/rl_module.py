"""Base class for RLModules with a catalog model: it builds the model, reads Ray's batches, and
stores checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import tree  # type: ignore[import-untyped]
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, SelfSupervisedLossAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import tensor_ops
from rlcatalog_rllib.checkpoints import IDENTITY, check_same, check_weights, identity
from rlcatalog_rllib.distribution import CatalogDistribution
from rlcatalog_rllib.recipe import Recipe, build_policy
from rlcatalog_rllib.refusals import check_served
from rlcatalog_rllib.spaces import MASK, OBS, VIEWS, original_space
from rlcatalog_torch import Padding, values_of


@dataclass
class Rows:
    """Batch in the format that the model takes as input.

    Attributes:
        obs: Encoded observations `[N, ...]`.
        mask: Action masks as columns `[N, m]`, or None.
        views: The model's views of the past, each `[N, ...]`.
        shape: Leading axes of the batch: `(N,)`, or `(S, T)` for S sequences of T steps.
        lengths: Sequence lengths `[S]`, or None for a model without memory.
        states: Memory at the start of each sequence.
        padding: The sequences' padding, if any.
    """

    obs: Tensor
    mask: Tensor | None
    views: dict[str, Any]
    shape: tuple[int, ...]
    lengths: Tensor | None
    states: list[Tensor]
    padding: Padding | None = None


class CatalogModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, SelfSupervisedLossAPI):
    """RLModule with a model that the catalog chose and built.

    `model_config` is rlcatalog's flat model config. `policy` contains the parts, and `policy.model`
    is this module's `model`.
    """

    policy: Policy
    model_config: Any

    # --- building ---------------------------------------------------------------------------------

    def setup(self) -> None:
        """Build the parts; called by Ray."""
        recipe = Recipe.of(self.model_config)
        self.policy = build_policy(
            recipe, original_space(self.observation_space), self.action_space
        )
        check_served(self.policy)
        self.recipe = recipe
        self.model: Any = self.policy.model
        self.target: Any = None
        self.model_config = {**self.model_config, "max_seq_len": self.policy.config["max_seq_len"]}
        self._dist_cls = CatalogDistribution.of(self.policy)
        #: Whether a distribution's parameters equal the model's output for all actions.
        self._outputs_are_params = self.policy.stored_dist is self.policy.dist_class
        self._state_names = [f"state_{i}" for i in range(len(self.policy.memory.initial))]
        self._acting, self._training = self.policy.views.acting, self.policy.views.training
        self._has_loss, self._has_metrics = map(self.policy.overrides, ("custom_loss", "metrics"))
        self.eval()

    def get_initial_state(self) -> dict[str, Any]:
        """Return the memory at the start of an episode: arrays without a batch axis; empty if there
        is no memory.
        """
        return dict(zip(self._state_names, self.policy.memory.initial, strict=True))

    def get_inference_action_dist_cls(self) -> Any:
        """Return the distribution class for `action_dist_inputs`."""
        return self._dist_cls

    # --- reading batches --------------------------------------------------------------------------

    def rows(self, batch: Mapping[str, Any], obs: Any = None) -> Rows:
        """Read a Ray batch.

        Args:
            batch: The batch.
            obs: Observations to use instead of the batch's.
        """
        obs = batch[Columns.OBS] if obs is None else obs
        mask, views = None, {}
        if isinstance(obs, Mapping):
            mask, views, obs = obs.get(MASK), obs.get(VIEWS, {}), obs[OBS]
        if not self._state_names:
            return Rows(obs, mask, views, (obs.shape[0],), None, [])
        shape = (obs.shape[0], obs.shape[1])
        given = batch[Columns.STATE_IN]
        states = [given[name] for name in self._state_names]
        if (lengths := batch.get(Columns.SEQ_LENS)) is None:
            lengths = torch.full(shape[:1], shape[1], dtype=torch.int32, device=obs.device)
        lengths, obs, views = lengths.to(torch.int32), folded(obs), folded(views)
        padding = Padding.of(lengths, obs)
        if padding is not None:  # Ray pads with zeros, but a model must only see real observations
            obs, views = padding.fill(padding.take(obs)), padding.fill(padding.take(views))
        return Rows(
            obs, None if mask is None else folded(mask), views, shape, lengths, states, padding
        )

    def run_model(
        self, model: Any, rows: Rows, training: bool, masked: bool = True
    ) -> tuple[Tensor, list[Any]]:
        """Return the model's outputs `[N, size]`, with action masks applied, and its new state."""
        inputs: dict[str, Any] = {Columns.OBS: rows.obs, "is_training": training}
        if training:
            for name, repeat in self._training.items():
                inputs[name] = _every(rows.views[name], rows.shape, repeat)
            inputs["outputs_only"] = True
        else:
            for name in self._acting:
                inputs[name] = rows.views[name]
            inputs["single_steps"] = rows.shape[-1] == 1 or len(rows.shape) == 1
        outputs, states = model(inputs, rows.states, rows.lengths)
        if masked and rows.mask is not None:
            outputs = self.policy.dist_class.masked(outputs, rows.mask.bool())
        return outputs, states

    def values_of(self, model: Any, rows: Rows) -> Tensor:
        """Return the values from a model's last forward pass, in the batch's shape."""
        return values_of(model).reshape(rows.shape)

    def state_out(self, rows: Rows, returned: list[Any]) -> dict[str, Tensor]:
        """Return the memory after one step, under the names of `get_initial_state`."""
        memory, _ = self.policy.memory.after(rows.states, returned, ops=tensor_ops("torch"))
        return dict(zip(self._state_names, memory, strict=True))

    # --- acting -----------------------------------------------------------------------------------

    def _forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, explore=False)

    def _forward_exploration(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, explore=True)

    def _act(self, batch: Mapping[str, Any], explore: bool) -> dict[str, Any]:
        raise NotImplementedError

    def draw(self, outputs: Tensor, explore: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return raw actions as Ray stores them, their log densities, and the parameters of their
        distributions.
        """
        actions, logp, params = self.policy.backend.draw(outputs, None, explore)
        if actions.ndim == 1 and not self.policy.action_codec.scalar:
            actions = actions[:, None]
        return actions, logp, outputs if self._outputs_are_params else params

    # --- training ---------------------------------------------------------------------------------

    def compute_self_supervised_loss(
        self,
        *,
        learner: Any,
        module_id: str,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
        **kwargs: Any,
    ) -> Tensor:
        """Apply the model's `custom_loss` to the learner's loss and return it; report the model's
        `metrics`.

        The model receives the batch's rows without sequence padding.
        """
        loss = learner.compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        if self._has_loss:
            rows = self.rows(batch)
            steps = {name: value for name, value in batch.items() if name not in _PER_SEQUENCE}
            steps = {**(folded(steps) if self._state_names else steps), Columns.OBS: rows.obs}
            if rows.padding is not None:
                steps = rows.padding.take(steps)
            # One element, because RLlib's models iterate over a list of losses, and others add to a
            # scalar.
            found = self.model.custom_loss(loss.reshape(1), {**batch, **steps})
            loss = (
                torch.stack([term.sum() for term in found]).sum()
                if isinstance(found, list | tuple)
                else found.sum()
            )
        if self._has_metrics and (metrics := self.model.metrics()):
            learner.metrics.log_dict(metrics, key=(module_id, "model"), window=1)
        found_loss: Tensor = loss
        return found_loss

    def make_target_networks(self) -> None:
        """Copy the model; called by APPO's and DQN's learners."""
        self.target = make_target_network(self.model)

    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """Return the model and its copy."""
        return [(self.model, self.target)]

    def get_non_inference_attributes(self) -> list[str]:
        """Return the attributes that are not needed for acting."""
        return ["target"]

    def __reduce__(self) -> Any:
        """Return the constructor's arguments and the weights, for pickling."""
        return _rebuilt, (type(self), self.get_ctor_args_and_kwargs()[1], self.get_state())  # type: ignore[no-untyped-call]

    # --- checkpoints ------------------------------------------------------------------------------

    def get_state(
        self,
        components: Any = None,
        *,
        not_components: Any = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the weights and, unless they are for environment runners, the
        module's identity.
        """
        state = super().get_state(
            components, not_components=not_components, inference_only=inference_only, **kwargs
        )
        return state if inference_only else {**state, IDENTITY: identity(self.policy)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the weights.

        Raises:
            SavedPolicyError: The weights belong to a different environment or to different parts.
        """
        weights = dict(state)
        check_same(self.policy, weights.pop(IDENTITY, None))
        have = {name: tuple(tensor.shape) for name, tensor in self.state_dict().items()}
        check_weights(have, {name: tuple(value.shape) for name, value in weights.items()})
        super().set_state(weights)


def _rebuilt(
    cls: type[CatalogModule], arguments: dict[str, Any], state: dict[str, Any]
) -> CatalogModule:
    module = cls(**arguments)
    if any(name.startswith("target.") for name in state):
        module.make_target_networks()
    module.set_state(state)
    return module


def folded(value: Any) -> Any:
    """Reshape `[S, T, ...]` to `[S * T, ...]` for each tensor in a structure."""
    return tree.map_structure(lambda part: part.flatten(0, 1), value)


#: Columns with one row per sequence instead of one per step.
_PER_SEQUENCE = (Columns.SEQ_LENS, Columns.STATE_IN, Columns.NEXT_STATE_IN)


def _every(value: Any, shape: tuple[int, ...], repeat: int) -> Any:
    """Keep every `repeat`-th row of each sequence, for views with a `batch_repeat_value`."""
    if repeat == 1 or len(shape) == 1:
        return value
    return tree.map_structure(
        lambda part: part.reshape(*shape, *part.shape[1:])[:, ::repeat].flatten(0, 1), value
    )


def need_values(policy: Policy) -> None:
    """Raise an error unless the model has a value branch.

    Raises:
        ModelContractError: It does not.
    """
    if not policy.has_value:
        raise ModelContractError(
            f"{policy.model_name} has no value_function(), which PPO, APPO and IMPALA need."
            " Implement it."
        )
