"""Base class for RLModules with a catalog model: it builds the model, reads Ray's batches, and
stores checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import tree  # type: ignore[import-untyped]
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, SelfSupervisedLossAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from rlcatalog import ModelV2, Policy
from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import TensorTree, tensor_ops
from rlcatalog_rllib.checkpoints import IDENTITY, check_same, check_weights, identity
from rlcatalog_rllib.distribution import CatalogDistribution
from rlcatalog_rllib.recipe import Recipe, build_policy
from rlcatalog_rllib.refusals import check_served
from rlcatalog_rllib.spaces import (
    MASK,
    OBS,
    VIEWS,
    Space,
    original_action_space,
    original_space,
)
from rlcatalog_torch import Padding, TorchModelV2, values_of

#: Encoded observations in Ray's batches; see `rlcatalog_rllib.spaces`.
Observations: TypeAlias = "Tensor | Mapping[str, Any]"


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
    observation_space: Space
    action_space: Space

    # --- building ---------------------------------------------------------------------------------

    def setup(self) -> None:
        """Build the parts; called by Ray."""
        self.recipe = self.read_recipe()
        self.policy = build_policy(
            self.recipe,
            original_space(self.observation_space),
            original_action_space(self.action_space),
        )
        check_served(self.policy)
        self.model: Any = self.policy.model
        self.target: Any = None
        self.model_config = {**self.model_config, "max_seq_len": self.policy.config["max_seq_len"]}
        self._dist_cls = CatalogDistribution.of(self.policy)
        #: Whether a distribution's parameters equal the model's output for all actions. Otherwise,
        #: such as for parts that depend on earlier ones, it is rebuilt by another class.
        self._outputs_are_params = self.policy.stored_dist is self.policy.dist_class
        self._state_names = [f"state_{i}" for i in range(len(self.policy.memory.initial))]
        self._leaves_critic_out = _has_critic_without_state(self.policy)
        self._has_custom_loss = self.policy.overrides("custom_loss")
        self._has_metrics = self.policy.overrides("metrics")
        self.eval()  # until a learner calls train()

    def read_recipe(self) -> Recipe:
        """Return the recipe for the policy from the module's `model_config`."""
        return Recipe.of(self.model_config)

    @property
    def has_memory(self) -> bool:
        """Whether the model has a memory, so that Ray's batches contain sequences and states."""
        return bool(self._state_names)

    def get_initial_state(self) -> dict[str, Any]:
        """Return the memory at the start of an episode: arrays without a batch axis; empty if there
        is no memory.
        """
        return dict(zip(self._state_names, self.policy.memory.initial, strict=True))

    def get_inference_action_dist_cls(self) -> Any:
        """Return the distribution class for `action_dist_inputs`."""
        return self._dist_cls

    # --- reading batches --------------------------------------------------------------------------

    def rows(self, batch: Mapping[str, Any], obs: Observations | None = None) -> Rows:
        """Read a Ray batch.

        Args:
            batch: The batch.
            obs: Observations to use instead of the batch's.
        """
        encoded: Any = batch[Columns.OBS] if obs is None else obs
        mask: Tensor | None = None
        views: dict[str, Any] = {}
        if isinstance(encoded, Mapping):
            mask = encoded.get(MASK)
            views = encoded.get(VIEWS, {})
            encoded = encoded[OBS]
        if self.has_memory:
            return self._sequences(batch, encoded, mask, views)
        return Rows(encoded, mask, views, shape=(encoded.shape[0],), lengths=None, states=[])

    def _sequences(
        self, batch: Mapping[str, Any], obs: Tensor, mask: Tensor | None, views: dict[str, Any]
    ) -> Rows:
        """Read a Ray batch of S sequences of T steps, for a model with memory.

        Args:
            batch: The batch.
            obs: Encoded observations `[S, T, ...]`.
            mask: Action masks `[S, T, m]`, or None.
            views: The model's views of the past, each `[S, T, ...]`.
        """
        sequence_count, step_count = obs.shape[:2]
        states = [batch[Columns.STATE_IN][name] for name in self._state_names]
        lengths: Tensor | None = batch.get(Columns.SEQ_LENS)
        if lengths is None:
            lengths = torch.full(
                (sequence_count,), step_count, dtype=torch.int32, device=obs.device
            )
        lengths = lengths.to(torch.int32)
        obs = folded(obs)
        views = folded(views)
        if mask is not None:
            mask = folded(mask)
        padding = Padding.of(lengths, obs)
        if padding is not None:
            # Ray pads with zeros, but a model must only see real observations.
            obs = padding.fill(padding.take(obs))
            views = padding.fill(padding.take(views))
        shape = (sequence_count, step_count)
        return Rows(obs, mask, views, shape, lengths, states, padding)

    def run_model(
        self, model: TorchModelV2, rows: Rows, *, training: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Return a model's outputs `[N, size]` and its new state."""
        if training and not model.training:
            # A policy is built for acting, and Ray 2.54 does not switch modules to training.
            model.train()
        inputs = self._training_inputs(rows) if training else self._acting_inputs(rows)
        outputs, states = model(inputs, rows.states, rows.lengths)
        return outputs, states

    def run_model_for_acting(self, rows: Rows) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs `[N, size]` and the new state for acting, which needs no values.

        A critic of its own is left out, unless it has a memory: RLlib stores its states, with which
        training begins its sequences.
        """
        if not self._leaves_critic_out:
            return self.run_model(self.model, rows, training=False)
        inputs = self._acting_inputs(rows)
        outputs, states = self.model.run_policy(inputs, rows.states, rows.lengths)
        return outputs, states

    def _training_inputs(self, rows: Rows) -> dict[str, Any]:
        inputs = {Columns.OBS: rows.obs, "is_training": True, "outputs_only": True}
        for name, repeat in self.policy.views.training_repeats.items():
            inputs[name] = _keep_every_nth_row(rows.views[name], rows.shape, repeat)
        return inputs

    def _acting_inputs(self, rows: Rows) -> dict[str, Any]:
        has_single_steps = len(rows.shape) == 1 or rows.shape[-1] == 1
        inputs = {Columns.OBS: rows.obs, "is_training": False, "single_steps": has_single_steps}
        for name in self.policy.views.acting_names:
            inputs[name] = rows.views[name]
        return inputs

    def mask_outputs(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return a model's outputs with the action masks of its rows applied."""
        if rows.mask is None:
            return outputs
        masked: Tensor = self.policy.dist_class.masked(outputs, rows.mask.bool())
        return masked

    def values_of(self, model: ModelV2, rows: Rows) -> Tensor:
        """Return a model's value estimates for the rows of its last call, in the batch's shape.

        In RLlib's contract, `value_function()` belongs to the model's last call, so call this
        method right after `run_model`.
        """
        return values_of(model).reshape(rows.shape)

    def state_out(self, rows: Rows, returned: list[Tensor]) -> dict[str, Tensor]:
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
        no_mask = None  # the outputs are masked already
        actions, logp, params = self.policy.backend.draw(outputs, no_mask, explore)
        if actions.ndim == 1 and not self.policy.action_codec.scalar:
            actions = actions[:, None]
        if self._outputs_are_params:
            params = outputs
        return actions, logp, params

    # --- training ---------------------------------------------------------------------------------

    def compute_self_supervised_loss(  # type: ignore[override]
        self,
        *,
        learner: TorchLearner,
        module_id: str,
        config: AlgorithmConfig,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
        **kwargs: Any,
    ) -> Tensor:
        """Apply the model's `custom_loss` to the learner's loss and return it; report the model's
        `metrics`.

        The model receives the batch's rows without sequence padding.
        """
        loss: Any = learner.compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        if self._has_custom_loss:
            loss = self._custom_loss(loss, batch)
        if self._has_metrics:
            metrics = self.model.metrics()
            if metrics:
                # With a window of 1, the last value is reported instead of a mean.
                learner.metrics.log_dict(metrics, key=(module_id, "model"), window=1)
        total: Tensor = loss
        return total

    def _custom_loss(self, loss: Tensor, batch: dict[str, Any]) -> Tensor:
        """Return the loss to which the model's `custom_loss` has been applied."""
        rows = self.rows(batch)
        columns = {
            name: value for name, value in batch.items() if name not in _COLUMNS_PER_SEQUENCE
        }
        if self.has_memory:
            columns = folded(columns)
        columns[Columns.OBS] = rows.obs
        if rows.padding is not None:
            columns = rows.padding.take(columns)
        # One element, because RLlib's models iterate over a list of losses, and others add to a
        # scalar.
        rows_of_batch = {**batch, **columns}  # the columns per sequence do not change
        result = self.model.custom_loss(loss.reshape(1), rows_of_batch)
        if isinstance(result, list | tuple):
            return torch.stack([term.sum() for term in result]).sum()
        total: Tensor = result.sum()
        return total

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
        _, arguments = self.get_ctor_args_and_kwargs()  # type: ignore[no-untyped-call]
        return _rebuilt, (type(self), arguments, self.get_state())

    # --- checkpoints ------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the weights and, unless they are for environment runners, the
        module's identity.
        """
        state = super().get_state(
            components, not_components=not_components, inference_only=inference_only, **kwargs
        )
        if not inference_only:
            state = {**state, IDENTITY: identity(self.policy)}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the weights.

        Raises:
            SavedPolicyError: The weights belong to a different environment or to different parts.
        """
        weights = dict(state)
        check_same(self.policy, weights.pop(IDENTITY, None))
        check_weights(_shapes(self.state_dict()), _shapes(weights))
        super().set_state(weights)


def _has_critic_without_state(policy: Policy) -> bool:
    """Return whether a policy has a critic of its own that remembers nothing."""
    if policy.resolution.critic is None:
        return False
    model: Any = policy.model
    num_policy_states: int = model.num_policy_states
    return len(policy.memory.initial) == num_policy_states


def _shapes(weights: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    # Ray turns a tensor without axes, such as the counter of a BatchNorm, into a number, which has
    # no attribute `shape`.
    return {name: tuple(np.shape(value)) for name, value in weights.items()}


def _rebuilt(
    cls: type[CatalogModule], arguments: dict[str, Any], state: dict[str, Any]
) -> CatalogModule:
    module = cls(**arguments)
    if any(name.startswith("target.") for name in state):
        module.make_target_networks()
    module.set_state(state)
    return module


def folded(value: TensorTree) -> Any:
    """Reshape `[S, T, ...]` to `[S * T, ...]` for each tensor in a structure."""
    return tree.map_structure(lambda tensor: tensor.flatten(0, 1), value)


#: Columns with one row per sequence instead of one per step.
_COLUMNS_PER_SEQUENCE = (Columns.SEQ_LENS, Columns.STATE_IN, Columns.NEXT_STATE_IN)


def _keep_every_nth_row(views: TensorTree, shape: tuple[int, ...], repeat: int) -> Any:
    """Return every `repeat`-th row of each sequence, for views with a `batch_repeat_value`.

    Args:
        views: The views `[N, ...]`, a tensor or a structure of tensors.
        shape: Leading axes of the batch; see `Rows`.
        repeat: The `batch_repeat_value`.
    """
    is_sequence = len(shape) > 1
    if repeat == 1 or not is_sequence:
        return views

    def keep_every(tensor: Tensor) -> Tensor:
        sequences = tensor.reshape(*shape, *tensor.shape[1:])
        return sequences[:, ::repeat].flatten(0, 1)

    return tree.map_structure(keep_every, views)


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
