"""PyTorch modules made from a policy, for training loops that take modules.

`policy.as_module()` returns a single module for actor and critic. `actor_critic(policy)` returns
one module for each, and a distribution with the interface of `torch.distributions`, for TorchRL and
tianshou.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlcatalog.actions import NOT_GIVEN, entropy_of, unbind
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import PolicyParts, lengths_list, memory_of, ops_of
from rlcatalog_torch.dtypes import dtype_of, floats_as, to_float32_at_least
from rlcatalog_torch.nn import values_of
from rlcatalog_torch.ops import OPS, flat_sample
from rlcatalog_torch.private_api import (
    MODULES,
    Movable,
    are_transforms_active,
    constant_in_graphs,
    modules_of,
)
from rlcatalog_torch.sequences import Padding


class _Traits(NamedTuple):
    """Facts about a policy that a module reads at each call."""

    dtype: torch.dtype
    obs_shape: tuple[int, ...]
    needs_mask: bool
    mask_columns: int
    outputs: int
    has_value: bool


@constant_in_graphs
def _traits(policy: PolicyParts, model: nn.Module) -> _Traits:
    """Return the facts about a policy that compiled code takes as constants.

    Compiled code checks at each call that every other attribute it reads has not changed.
    """
    return _Traits(
        dtype=dtype_of(model),
        obs_shape=tuple(policy.preprocessor.shape),
        needs_mask=policy.masks.key is not None,  # the key of masks in observations
        mask_columns=policy.masks.size,
        outputs=policy.output_checker.outputs,
        has_value=policy.has_value,
    )


class PolicyModule(Movable):
    """A policy's model and action distribution as a module that shares the policy's weights.

    Moving the module to a device also moves the policy. A deep copy has its own weights, as target
    networks need.

    Args:
        policy: The policy, whose model sees no past steps except through its memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        super().__init__()
        self.policy = policy
        self.model = policy.model
        self.has_memory = bool(policy.memory)
        ops_of(torch.empty(0))  # only to import PyTorch's operations: compiled code cannot import
        self._device_name = policy.device
        state_dict = self.model.state_dict()
        #: Buffers that are not in the state dict, by name.
        self._constants = {
            name: buffer for name, buffer in self.model.named_buffers() if name not in state_dict
        }
        # The class of distributions, and the keyword arguments that the policy binds to it.
        self.dist_class, self.dist_options = unbind(policy.dist_class)

    def forward(
        self,
        obs: Tensor,
        mask: Any = NOT_GIVEN,
        *,
        state: Sequence[Tensor] | None = None,
        seq_lens: Tensor | Sequence[int] | None = None,
    ) -> Any:
        """Return the distribution of raw actions and the value estimates, and for a model with a
        memory also its new state.

        Args:
            obs: Encoded observations `[B, ...]`. For a memory, either one step of B episodes, or
                the steps of S sequences one after the other.
            mask: Action masks, booleans `[B, m]`, which observations with a mask need; None allows
                every action.
            state: The memory before the first step, tensors `[S, ...]`; None at the start of
                episodes.
            seq_lens: Lengths `[S]` of the sequences, which add up to B; None if each row is one
                step. In `torch.compile`, a list of equal integers.

        Returns:
            `(distribution, values)`, or `(distribution, values, new_state)` for a memory. The
            values have the shape `[B]`, or are None if the model estimates none. The new state is
            the memory after each sequence, a tuple of tensors `[S, ...]`.

        Raises:
            ObservationError: The observations do not have the encoded shape.
            ActionMaskError: The masks have the wrong shape, a mask allows no action, or the
                observation space has a mask and none is given.
            ModelContractError: The state or the lengths do not fit the observations.
            NotServedError: The model has no memory, and a state or lengths are given.
        """
        inputs, value, new_state = self._run(obs, mask, state, seq_lens)
        dist = self.dist_class(inputs, self.model, **self.dist_options)
        if self.has_memory:
            return dist, value, new_state
        return dist, value

    def initial_state(self, sequences: int) -> tuple[Tensor, ...]:
        """Return the memory at the start of episodes, tensors `[sequences, ...]` on the model's
        device; empty for a model without memory.
        """
        device = next(self.model.parameters()).device
        dtype = dtype_of(self.model)
        states = []
        for initial in self.model.get_initial_state():
            state = floats_as(torch.as_tensor(initial, device=device), dtype)
            states.append(state.expand(sequences, *state.shape))
        return tuple(states)

    def _run(
        self,
        obs: Tensor,
        mask: Any,
        state: Sequence[Tensor] | None = None,
        seq_lens: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """Return the distribution's parameters `[B, n]`, which include masks, the value estimates,
        and the new state.
        """
        model = self.model
        # Acting and scoring set the model's mode, but not this module's.
        if model.training is not self.training:
            model.train(self.training)
        mask = self._check_inputs(obs, mask)
        if self.has_memory:
            outputs, value, new_state = self._remember(obs, state, seq_lens)
        elif state is not None or seq_lens is not None:
            raise NotServedError(
                f"{self.policy.model_name} has no memory, so its module takes neither state nor"
                " seq_lens."
            )
        else:
            outputs, value, _ = self._pass(obs, memory=[], seq_lens=None)
            new_state = ()
        inputs = to_float32_at_least(outputs)
        if mask is not None:
            allowed = torch.as_tensor(mask, device=inputs.device).bool()
            inputs = self.dist_class.masked(inputs, allowed, **self.dist_options)
        return inputs, value, new_state

    def _check_inputs(self, obs: Tensor, mask: Any) -> Any:
        """Check the shapes of observations and masks; return the mask, or None.

        Compiled and transformed code only knows shapes, so it does not notice a mask that allows
        no action.
        """
        knows_values = not (torch.compiler.is_compiling() or are_transforms_active())
        if knows_values:
            return self.policy.encoder.resolve_mask(obs, mask)
        traits = _traits(self.policy, self.model)
        if mask is NOT_GIVEN and not traits.needs_mask:
            mask = None
        fits = obs.shape[1:] == traits.obs_shape
        # NOT_GIVEN, if the policy needs a mask, does not fit.
        if fits and mask is not None:
            fits = mask is not NOT_GIVEN and mask.shape == (obs.shape[0], traits.mask_columns)
        if not fits:
            # This call raises the error that says what does not fit.
            return self.policy.encoder.resolve_mask(obs, mask)
        return mask

    def _remember(
        self,
        obs: Tensor,
        state: Sequence[Tensor] | None,
        seq_lens: Tensor | Sequence[int] | None,
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...]]:
        """Run a model with a memory on single steps or on sequences without padding."""
        rows = obs.shape[0]
        lengths = [1] * rows if seq_lens is None else lengths_list(seq_lens, rows)
        memory = self._memory_before(state, len(lengths))
        longest = max(lengths)
        padding = None
        is_padding_needed = min(lengths) < longest
        if is_padding_needed:
            padding = Padding(np.asarray(lengths, np.int32), longest, obs.device)
            obs = padding.fill(obs)
        outputs, value, returned = self._pass(
            obs,
            memory,
            torch.tensor(lengths, dtype=torch.int32, device=obs.device),
            single_steps=longest == 1,
            no_padding=padding is None,
        )
        if padding is not None:
            outputs, value = padding.take((outputs, value))
        # Only a model that reads past states needs the past, and no module has such a model.
        past = ()
        new_state, _ = self.policy.memory.after(memory, returned, past, OPS)
        return outputs, value, new_state

    def _memory_before(self, state: Sequence[Tensor] | None, sequences: int) -> list[Tensor]:
        """Return a state as the model takes it.

        Raises:
            ModelContractError: The number of tensors or of rows is wrong.
        """
        if state is None:
            return list(self.initial_state(sequences))
        memory = memory_of(self.policy, {"state": state}, sequences)
        dtype = dtype_of(self.model)
        return [floats_as(part, dtype) for part in memory]

    def _pass(
        self, obs: Tensor, memory: list[Tensor], seq_lens: Tensor | None, **flags: bool
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Run the model, with `flags` as further entries of its input, and return its outputs, its
        value estimates and the state that it returned.
        """
        model = self.model
        rows = obs.shape[0]
        traits = _traits(self.policy, model)
        input_dict = {"obs": floats_as(obs, traits.dtype), "is_training": self.training, **flags}
        outputs, returned = model(input_dict, memory, seq_lens)
        if type(outputs) is not Tensor or outputs.shape != (rows, traits.outputs):
            self.policy.output_checker.check_outputs(outputs, rows)
        value = values_of(model, rows) if traits.has_value else None
        return outputs, value, returned

    def on_move(self) -> None:
        """Move the policy to the model's new device."""
        first_weight = next(self.model.parameters(), None)
        device_name = "cpu" if first_weight is None else str(first_weight.device)
        if self._device_name == "meta" and device_name != "meta":
            self._restore_constants()
        self._device_name = device_name
        # A deep copy of this module has a copy of the model, which the policy does not use.
        is_copy = self.policy.model is not self.model
        if not is_copy and device_name != self.policy.device:
            self.policy.to(device_name)

    def _restore_constants(self) -> None:
        """Set the buffers that no state dict contains: on the device "meta", they lost their
        numbers.
        """
        buffers = dict(self.model.named_buffers())
        with torch.no_grad():
            for name, value in self._constants.items():
                buffers[name].copy_(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = copy.copy(self)
        twin.__dict__[MODULES] = copy.deepcopy(modules_of(self), memo)
        return twin


class _Part(PolicyModule):
    """A policy's actor or critic; see `actor_critic`.

    Args:
        policy: The policy.
        index: Which result of the model it returns: 0 for the parameters, 1 for the values.
    """

    def __init__(self, policy: PolicyParts, index: int) -> None:
        super().__init__(policy)
        self.index = index

    def forward(self, obs: Tensor, mask: Any = NOT_GIVEN) -> Tensor:  # type: ignore[override]
        """Run the model on the rows of a batch with any axes."""
        axes = obs.shape[: obs.ndim - len(self.policy.preprocessor.shape)]
        rows = obs.reshape(-1, *obs.shape[len(axes) :])
        if isinstance(mask, Tensor):
            mask = mask.reshape(-1, mask.shape[-1])
        results: Any = self._run(rows, mask)
        return results[self.index].reshape(*axes, -1)  # type: ignore[no-any-return]


class ActorDistribution(torch.distributions.Distribution):
    """A distribution from the catalog with the interface of `torch.distributions`, for batches with
    any axes.

    Args:
        dist_class: The catalog's class, `dist_class(inputs, model)`.
        model: The model that computed the inputs.
        inputs: Its parameters `[..., n]`.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, dist_class: Any, model: Any, inputs: Tensor) -> None:
        super().__init__(inputs.shape[:-1], validate_args=False)
        self.dist = dist_class(inputs.reshape(-1, inputs.shape[-1]), model)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw raw actions: `[...]` for a single Discrete, otherwise `[..., width]`, with
        `sample_shape` in front.
        """
        shape = torch.Size(sample_shape)
        draws = [
            self._add_batch_axes(flat_sample(self.dist.sample())) for _ in range(shape.numel())
        ]
        return torch.stack(draws).reshape(shape + draws[0].shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density `[...]` of raw actions."""
        rows = value.reshape(-1, *value.shape[len(self.batch_shape) :])
        logp: Tensor = self.dist.logp(rows)
        return logp.reshape(self.batch_shape)

    def entropy(self) -> Tensor:
        """Return the entropy `[...]`, or an unbiased estimate if it has no closed form."""
        entropy: Tensor
        entropy, _ = entropy_of(self.dist, flat_sample)
        return entropy.reshape(self.batch_shape)

    @property
    def mode(self) -> Tensor:
        """The deterministic raw actions, which are not always the most likely ones."""
        return self._add_batch_axes(flat_sample(self.dist.deterministic_sample()))

    deterministic_sample = mode  # TorchRL's name

    @property
    def variance(self) -> Tensor:
        """NaN, as in `torch.distributions.Categorical`: loops record a mean, but the catalog's
        classes have none.
        """
        return torch.full_like(self.mode, torch.nan, dtype=torch.float32)

    def _add_batch_axes(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.batch_shape + rows.shape[1:])


def actor_critic(
    policy: PolicyParts,
) -> tuple[nn.Module, nn.Module, Callable[[Tensor], ActorDistribution]]:
    """Return a policy's actor, critic and distribution for engines such as TorchRL, skrl and
    tianshou.

    Args:
        policy: The policy.

    Returns:
        - The actor, a module that maps encoded observations `[..., *shape]` and masks `[..., m]`,
            if any, to the parameters `[..., n]` of the action distribution.
        - The critic, a module that maps the same inputs to value estimates `[..., 1]`. Actor and
            critic share the policy's weights.
        - A function that maps the parameters to a `torch.distributions.Distribution` of raw
          actions.

    Raises:
        NotServedError: The model has a memory, looks at past steps, or has no value branch.
    """
    policy.as_module()  # only for its error: a model that sees past steps cannot be a module
    if policy.memory:
        raise NotServedError(
            f"actor_critic: {policy.model_name} has a memory, for which a critic and an actor apart"
            " have no state. Use policy.as_module()."
        )
    if not policy.has_value:
        raise NotServedError(f"actor_critic: {policy.model_name} has no value_function().")
    actor = _Part(policy, index=0)
    critic = _Part(policy, index=1)
    return actor, critic, partial(ActorDistribution, policy.dist_class, policy.model)
