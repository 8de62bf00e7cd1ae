"""Learner in PyTorch, with gradients, gradient clipping and Adam."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Gradient, PolicyParts, TensorTree
from rlcatalog.models import parts_with_own_rate
from rlcatalog.spaces import map_tensors
from rlcatalog_torch.dtypes import to_array
from rlcatalog_torch.private_api import foreach_add_, foreach_mul_, foreach_norm, fused_adam_


class State(NamedTuple):
    """Adam's state for a single weight.

    Attributes:
        step: Number of steps taken, as a float32 scalar on the weight's device.
        first: Running mean of the gradients, with the weight's dtype, device and strides.
        second: Running mean of the squared gradients.
    """

    step: Tensor
    first: Tensor
    second: Tensor


@dataclass
class _Group:
    """What a step of Adam passes to the operator for weights of one device, dtype and rate.

    All but `steps` are vectors, because the operator copies a gradient that is not contiguous, such
    as a convolution's.

    Attributes:
        weights: The weights.
        gradients: Their gradients.
        firsts: The first moments.
        seconds: The second moments.
        steps: The numbers of steps.
    """

    weights: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    firsts: list[Tensor] = field(default_factory=list)
    seconds: list[Tensor] = field(default_factory=list)
    steps: list[Tensor] = field(default_factory=list)

    def add(self, weight: Tensor, gradient: Tensor, state: State) -> None:
        """Add a weight."""
        self.weights.append(weight)
        self.gradients.append(gradient)
        self.firsts.append(state.first)
        self.seconds.append(state.second)
        self.steps.append(state.step)


#: What the weights of one `_Group` have in common: device, dtype and learning rate.
_Kind: TypeAlias = tuple[torch.device, torch.dtype, float]


class Adam:
    """Adam optimiser (Kingma and Ba 2015, algorithm 1) with the same operator as
    `torch.optim.Adam(fused=True)`.

    This class does not use `torch.optim`, because constructing one of its optimisers imports
    `torch._dynamo`, which takes most of a short run's time. The results are bitwise equal to those
    of `torch.optim`. A PyTorch version without the operator, or with a different signature, raises
    an error at the first step.

    Weights without a gradient are skipped, and their step count does not increase.

    Args:
        weights: The weights to optimise.
        eps: Number added to the square root of the corrected second moment.
        beta1: Decay rate of the first moments.
        beta2: Decay rate of the second moments.

    Attributes:
        part_of: The part of each weight whose learning rate is not the others'; empty by default.
        state: State of each weight that has been updated at least once.

    Raises:
        NotServedError: A weight is not a floating-point tensor, or its memory contains gaps or
            overlaps.
    """

    def __init__(
        self,
        weights: Iterable[Tensor],
        *,
        eps: float = 1e-8,
        beta1: float = 0.9,
        beta2: float = 0.999,
    ) -> None:
        self.weights = list(dict.fromkeys(weights))
        self.eps = eps
        self.beta1 = beta1
        self.beta2 = beta2
        self.state: dict[Tensor, State] = {}
        self.part_of: dict[Tensor, str] = {}
        for weight in self.weights:
            _check(weight)

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self, lr: float, part_rates: Mapping[str, float] | None = None) -> None:
        """Update the weights with their gradients.

        Args:
            lr: Learning rate.
            part_rates: Learning rates of the parts in `part_of`.
        """
        for (_device, _dtype, weight_lr), group in self._groups(lr, part_rates or {}).items():
            foreach_add_(group.steps, 1)
            fused_adam_(
                group.weights,
                group.gradients,
                group.firsts,
                group.seconds,
                (),  # maxima of second moments, which only amsgrad has
                group.steps,
                lr=weight_lr,
                beta1=self.beta1,
                beta2=self.beta2,
                eps=self.eps,
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
            )

    def _groups(self, lr: float, part_rates: Mapping[str, float]) -> dict[_Kind, _Group]:
        """Return the weights that have gradients, with their states, by kind: the operator takes
        weights of one device, one dtype and one learning rate.
        """
        groups: defaultdict[_Kind, _Group] = defaultdict(_Group)
        for weight in self.weights:
            gradient = weight.grad
            if gradient is None:
                continue
            # The operator reads the memory of each tensor from end to end.
            if gradient.stride() != weight.stride():
                gradient = torch.empty_like(weight).copy_(gradient)
            state = self._state(weight)
            weight_lr = lr
            if self.part_of and weight in self.part_of:
                weight_lr = part_rates[self.part_of[weight]]
            group = groups[weight.device, weight.dtype, weight_lr]
            if weight.is_contiguous():  # and so are the others, which have its strides
                group.add(weight, gradient, state)
            else:
                vectors = State(state.step, _as_vector(state.first), _as_vector(state.second))
                group.add(_as_vector(weight), _as_vector(gradient), vectors)
        return groups

    @torch.no_grad()
    def set_state(self, weight: Tensor, step: float, first: Tensor, second: Tensor) -> None:
        """Set the state of a weight.

        Args:
            weight: One of the weights.
            step: Steps taken.
            first: Running mean of the weight's gradients, in the weight's shape.
            second: Running mean of the squared gradients.
        """
        _check(weight)
        self.state[weight] = State(
            torch.full((), float(step), dtype=torch.float32, device=weight.device),
            torch.empty_like(weight).copy_(first),
            torch.empty_like(weight).copy_(second),
        )

    def _state(self, weight: Tensor) -> State:
        """Return the state of a weight, on the weight's current device and in its current dtype."""
        state = self.state.get(weight)
        if state is None:
            zeros = torch.zeros_like(weight)
            self.set_state(weight, step=0, first=zeros, second=zeros)
            return self.state[weight]
        first = state.first
        has_moved = first.dtype is not weight.dtype or first.device != weight.device
        if has_moved or first.stride() != weight.stride():
            # `set_state` copies the moments to tensors like the weight.
            self.set_state(weight, state.step.item(), first, state.second)
            return self.state[weight]
        return state


def _as_vector(x: Tensor) -> Tensor:
    """Return a tensor whose memory has no gaps as a vector, in the order of its memory."""
    return x.as_strided((x.numel(),), (1,))


def _check(weight: Tensor) -> None:
    """Raise an error if the fused operator cannot update a weight."""
    if not weight.is_floating_point():
        raise NotServedError(f"Adam needs floating-point weights, found one of {weight.dtype}.")
    # `empty_like` keeps the strides of a weight that fills its memory without gaps.
    if torch.empty_like(weight).stride() != weight.stride():
        raise NotServedError(
            f"Adam: a weight of shape {tuple(weight.shape)} and strides {weight.stride()} is a"
            " view whose memory has gaps or overlaps, so an update would change other values. Use"
            " a copy: nn.Parameter(view.clone())."
        )


def gradient_norm(weights: Sequence[Tensor]) -> Tensor:
    """Return the norm of all gradients, taken as one vector; 0 if there are no gradients."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = torch.stack(foreach_norm(gradients))
    norm: Tensor = torch.linalg.vector_norm(norms)
    return norm


def clip_gradients(weights: Sequence[Tensor], norm: Tensor, limit: float) -> None:
    """Scale the weights' gradients down to a maximum norm.

    Together with `gradient_norm`, the result is bitwise equal to `torch.nn.utils.clip_grad_norm_`,
    in half the time for small networks.

    Args:
        weights: The weights.
        norm: The result of `gradient_norm`.
        limit: Maximum norm.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    foreach_mul_(gradients, scale)


class TorchLearner:
    """Gradients, gradient clipping and Adam for a policy's weights; see
    `rlcatalog.frameworks.Learner`.

    Args:
        policy: The policy.
        eps: Number added to the square root of Adam's corrected second moment.
        lr_parts: Names of the model's parts that have their own learning rate.

    Raises:
        ConfigError: The model has no such part.
    """

    def __init__(
        self, policy: PolicyParts, eps: float = 1e-5, lr_parts: Collection[str] = ()
    ) -> None:
        self.policy = policy
        self.model: Any = policy.model
        self.parameters: list[Tensor] = list(self.model.trainable_variables())
        self.optimizer = Adam(self.parameters, eps=eps)
        weights = dict(self.model.named_parameters())
        part_of = parts_with_own_rate(self.model, lr_parts, "lr_parts")
        for name, part in part_of.items():
            if name in weights:  # a buffer is not trained
                self.optimizer.part_of[weights[name]] = part

    @staticmethod
    def seed(value: int) -> None:
        """Seed PyTorch."""
        torch.manual_seed(value)

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads that one operation can use."""
        torch.set_num_threads(count)

    def select_weights(self) -> None:
        """Train the weights that require gradients now; the moments of all others wait."""
        self.parameters = list(self.model.trainable_variables())
        self.optimizer.weights = self.parameters

    def gradient(
        self, loss: Callable[..., tuple[Tensor, Any]], *inputs: TensorTree | float | None
    ) -> Gradient | None:
        """Return the gradient of a loss, which the weights themselves hold; see
        `rlcatalog.frameworks.Learner`.
        """
        total, results = loss(*inputs)
        if not total.requires_grad:
            return None
        self.optimizer.zero_grad()
        torch.autograd.backward(total)
        norm = gradient_norm(self.parameters)
        return Gradient(total, results, norm, of_weights=None)

    def apply(
        self,
        gradient: Gradient,
        lr: float,
        limit: float | None,
        part_rates: Mapping[str, float] | None = None,
    ) -> None:
        """Update the weights with their gradients; see `rlcatalog.frameworks.Learner`."""
        norm = gradient.norm
        # Far below the limit, clipping would multiply by 1. Near it, how PyTorch rounds decides.
        if limit is not None and norm.item() + 1e-6 > 0.999 * limit:
            clip_gradients(self.parameters, norm, limit)
        self.optimizer.step(lr, part_rates)

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch as tensors on the model's device; see `rlcatalog.frameworks.Learner`."""
        device = self.policy.device

        def to_tensor(array: Array | Tensor) -> Tensor:
            if isinstance(array, Tensor):
                return array
            return torch.as_tensor(array, device=device)

        tensors = {}
        for name, part in batch.items():
            # The lengths of sequences stay on the CPU, where Python reads them.
            tensors[name] = part if name == "seq_lens" else map_tensors(part, to_tensor)
        return tensors

    def rows(self, columns: TensorTree, index: Array) -> Any:
        """Return the columns' rows at an index; see `rlcatalog.frameworks.Learner`."""
        indices = torch.from_numpy(index).to(self.policy.device)
        return map_tensors(columns, lambda column: column.index_select(0, indices))

    def get_state(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        states: dict[str, State] = {}
        for name, weight in self._learnable_weights().items():
            # A weight that has never had a gradient has no state.
            zeros = torch.zeros_like(weight)
            never_updated = State(torch.zeros(()), zeros, zeros)
            states[name] = self.optimizer.state.get(weight, never_updated)
        steps = {name: int(state.step) for name, state in states.items()}
        most_steps = max(steps.values(), default=0)
        # A weight that had no gradient in some steps has counted fewer.
        behind = {name: count for name, count in steps.items() if count != most_steps}
        return {
            "step": most_steps,
            "first": {name: to_array(state.first) for name, state in states.items()},
            "second": {name: to_array(state.second) for name, state in states.items()},
            "behind": behind,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimiser's state."""
        for name, weight in self._learnable_weights().items():
            step = state["behind"].get(name, state["step"])
            first = torch.from_numpy(state["first"][name].copy())
            second = torch.from_numpy(state["second"][name].copy())
            self.optimizer.set_state(weight, step, first, second)

    def _learnable_weights(self) -> dict[str, Tensor]:
        """Return the weights that learn now or, if their part is frozen, may learn later."""
        frozen_weights = self.model._rlcatalog_bookkeeping.frozen_weights
        weights = {}
        for name, weight in self.model.named_parameters():
            if weight.requires_grad or name in frozen_weights:
                weights[name] = weight
        return weights

    def means(self, figures: list[Tensor]) -> list[float]:
        """Return the means of metrics over several steps."""
        return torch.stack(figures).mean(dim=0).tolist()
