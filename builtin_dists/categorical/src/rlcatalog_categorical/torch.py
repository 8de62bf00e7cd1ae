"""Distributions over choices in PyTorch: one or several choices, bits, relaxed one-hot vectors,
slates.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, distributions
from torch.nn import functional

from rlcatalog.actions import same_kind
from rlcatalog_categorical import common
from rlcatalog_categorical.choice_columns import layout_of, lens_of
from rlcatalog_categorical.slates import Slates
from rlcatalog_torch import HALF, HIGHEST, LOWEST, TorchDistribution, to_float32_at_least
from rlcatalog_torch.private_api import cached_constant


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature into a new tensor; masked values stay masked, and all logits
    stay finite.

    Raises:
        ConfigError: The temperature is not positive.
    """
    common.check_temperature(temperature)
    limits = torch.finfo(logits.dtype)
    return torch.where(
        logits > limits.min, (logits / temperature).clamp(limits.min, limits.max), limits.min
    )


def race(probs: Tensor) -> Tensor:
    """Sample an index `[..., 1]` from probabilities `[..., n]`: the argmin of exponential
    variables.

    The exponential variables come from logs of uniform numbers, which is much faster than
    `exponential_`; the choice of argmin accounts for the sign. The uniform numbers start at 1e-30,
    so that their logs are finite and values with probability 0 never win.
    """
    if probs.dtype is not torch.float32:  # in half precision, the variables may round to 0
        probs = to_float32_at_least(probs)
    return (probs / torch.empty_like(probs).uniform_(1e-30, 1.0).log_()).argmin(
        dim=-1, keepdim=True
    )


class _Choices(TorchDistribution):
    """Normalised log probabilities `[..., n]` of choices, and quantities that are derived from them
    on first use.
    """

    log_probs: Tensor
    last_sample: Tensor
    _finite_log_probs: Tensor | None = None
    _exp: Tensor | None = None

    def _remember(self, index: Tensor) -> Tensor:
        self._index = index
        self.last_sample = index.squeeze(-1)
        return self.last_sample

    def _finite(self) -> Tensor:
        """Log probabilities with the lowest finite value instead of -inf, so that 0 · log 0 is not
        NaN.
        """
        if self._finite_log_probs is None:
            self._finite_log_probs = self.log_probs.clamp_min(LOWEST[self.log_probs.dtype])
        return self._finite_log_probs

    def _probs(self) -> Tensor:
        if self._exp is None:
            self._exp = self.log_probs.exp()
        return self._exp

    def sample(self) -> Tensor:
        """Sample values, int64 `[B]`, or `[B, k]` for several choices."""
        self._index = race(self._probs())
        self.last_sample = self._index.squeeze(-1)
        return self.last_sample


class Categorical(_Choices, common.CategoricalBase):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; see `CategoricalBase`."""

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        self.inputs, self.model = (
            inputs if temperature == 1.0 else tempered(inputs, temperature),
            model,
        )
        #: Normalised log probabilities `[B, n]`.
        self.log_probs: Tensor = self.inputs.log_softmax(-1)

    @classmethod
    def draw(cls, inputs: Any, model: Any = None, **options: Any) -> Any:
        if options or cls is not Categorical:
            return super().draw(inputs, model, **options)
        return race(inputs.softmax(-1)).squeeze(-1)

    def deterministic_sample(self) -> Tensor:
        """Return the most likely value, int64 `[B]`."""
        return self._remember(self.inputs.argmax(dim=-1, keepdim=True))

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of values with shape `[B]` or `[B, 1]`."""
        # Just sampled: its index is known, and its probability is not 0.
        if actions is self.last_sample:
            return self.log_probs.gather(-1, self._index).squeeze(-1)
        index = torch.as_tensor(actions, device=self.inputs.device).long().reshape(-1, 1)
        return self._finite().gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return the entropy -Σ p log p, `[B]`."""
        return (self._probs() * self._finite()).sum(-1).neg_()

    def kl(self, other: Any) -> Tensor:
        """Return the KL divergence Σ p (log p - log q), `[B]`."""
        if type(other) is not type(self):
            same_kind(self, other)
        divergence: Tensor = self._probs() * (self._finite() - other._finite())
        return divergence.sum(-1)

    def as_torch(self) -> distributions.Distribution:
        return distributions.Categorical(logits=self.log_probs, validate_args=False)


#: `layout_of`, whose result is a constant for `torch.compile`.
_layout_of = cached_constant(layout_of)


@cached_constant
def _padding(
    lens: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return each place's column and the number to add there: -inf for padding, otherwise 0."""
    layout = layout_of(lens)
    # Outside inference mode, so that cached tensors can be used in training.
    with torch.inference_mode(False):
        index = torch.as_tensor(layout.index, device=device)
        padding = index == layout.total
        bias = torch.zeros(padding.shape, dtype=dtype, device=device).masked_fill_(
            padding, -torch.inf
        )
        return index.clamp(max=layout.total - 1), bias


class MultiCategorical(_Choices, common.MultiCategoricalBase):
    """Independent choices `[B, k]`, each starting at 0; see `MultiCategoricalBase`."""

    choice = Categorical

    def __init__(
        self, inputs: Any, model: Any = None, input_lens: Any = None, action_space: Any = None
    ) -> None:
        self.layout = _layout_of(
            input_lens if type(input_lens) is tuple else lens_of(input_lens, action_space)
        )
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        shape, layout = inputs.shape, self.layout
        if len(shape) != 2 or shape[1] != layout.total:
            layout.check_width(shape)
        self.inputs, self.model = inputs, model
        if layout.index is None:
            logits = inputs.view(shape[0], len(layout.lens), layout.longest)
        else:
            index, bias = _padding(layout.lens, inputs.dtype, inputs.device)
            logits = (
                inputs.index_select(1, index)
                .add_(bias)
                .view(shape[0], len(layout.lens), layout.longest)
            )
        #: Normalised log probabilities `[B, k, longest]`; -inf in the padding of shorter choices.
        self.log_probs = logits.log_softmax(-1)

    def deterministic_sample(self) -> Tensor:
        """Return the most likely values, int64 `[B, k]`."""
        return self._remember(self.log_probs.argmax(-1, keepdim=True))

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]`, summed over the choices.

        Args:
            actions: `[B, k]` or `[B, *shape]` in C order, or a list of k tensors or arrays `[B]`.
        """
        # Just sampled: its index is known, and its probability is not 0.
        if actions is self.last_sample:
            return self.log_probs.gather(-1, self._index).sum((-2, -1))
        log_probs = self._finite().gather(-1, self._indices(actions)).sum((-2, -1))
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        return log_probs.clamp_min_(LOWEST[log_probs.dtype])

    def _indices(self, actions: Any) -> Tensor:
        """Return actions in any form as int64 `[B, k, 1]`."""
        device = self.inputs.device
        if isinstance(actions, list | tuple) and actions and hasattr(actions[0], "shape"):
            parts = [torch.as_tensor(part, device=device).reshape(-1) for part in actions]
            values = torch.stack(parts, dim=1)
        else:
            values = torch.as_tensor(actions, device=device)
        rows = self.inputs.shape[0]
        self.layout.check_actions(values.shape, rows)
        return values.long().reshape(rows, len(self.layout.lens), 1)

    def entropy(self) -> Tensor:
        """Return the sum of the choices' entropies, `[B]`."""
        return (self._probs() * self._finite()).sum((-2, -1)).neg_()

    def multi_entropy(self) -> Tensor:
        """Return the entropy of each choice, `[B, k]`."""
        return (self._probs() * self._finite()).sum(-1).neg_()

    def kl(self, other: Any) -> Tensor:
        """Return the sum of the choices' KL divergences, `[B]`."""
        return self._divergences(other).sum((-2, -1)).clamp_max_(HIGHEST[self.log_probs.dtype])

    def _divergences(self, other: Any) -> Tensor:
        if type(other) is not type(self):
            same_kind(self, other)
        if other.layout is not self.layout:
            self.layout.check_same(other.layout)
        return self._probs() * (self._finite() - other._finite())  # type: ignore[no-any-return]

    def as_torch(self) -> distributions.Distribution:
        choices = distributions.Categorical(logits=self.log_probs, validate_args=False)
        return distributions.Independent(choices, 1)


Categorical.joint = MultiCategorical


#: Above this input, softplus is the input itself, exactly.
_LINEAR = 40


class Bernoulli(TorchDistribution, common.BernoulliBase):
    """Independent bits `[B, n]`, with one logit each; see `BernoulliBase`."""

    last_sample: Tensor

    # Probabilities of 1 and of 0, computed on first use.
    _both: tuple[Tensor, Tensor] | None = None

    def __init__(self, inputs: Any, model: Any = None) -> None:
        self.inputs = inputs = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs)
        self.model = model
        #: The inputs for bits of the opposite meaning.
        self.opposite = -inputs
        #: Negative log probabilities `[B, n]` of 1 and of 0; finite. Stable: log(1 - p) would lose
        #: small probabilities.
        self.cost_1 = functional.softplus(self.opposite, 1, _LINEAR)
        self.cost_0 = functional.softplus(inputs, 1, _LINEAR)

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Tensor:
        """Apply a mask `[B, 2n]`, which says for each bit whether it may be 0 and whether it may be
        1.

        Raises:
            ActionMaskError: The mask does not have two columns per bit.
        """
        if mask.shape[-1] != 2 * inputs.shape[-1]:
            raise common.wrong_mask(inputs, mask)
        forbidden = ~mask.bool()
        dtype = inputs.dtype
        return inputs.masked_fill(forbidden[:, ::2], HIGHEST[dtype]).masked_fill(
            forbidden[:, 1::2], LOWEST[dtype]
        )

    def sample(self) -> Tensor:
        """Sample int64 `[B, n]`."""
        p = self._probs()[0]
        p = p.detach() if p.requires_grad else p
        # Uniform in [0, 1): never below 0, always below 1. Half precision would be too coarse.
        if p.dtype in HALF:
            return self._remember(torch.rand_like(p, dtype=torch.float32).lt_(p).type_as(p))
        return self._remember(torch.rand_like(p).lt_(p))

    def deterministic_sample(self) -> Tensor:
        """Return the most likely bits, int64 `[B, n]`; 0 where both are equally likely."""
        return self._remember((self.inputs > 0).type_as(self.inputs))

    def _remember(self, bits: Tensor) -> Tensor:
        self._bits = bits
        self.last_sample = bits.long()
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of bits `[B, n]` or `[B, *shape]`, summed
        over the bits.
        """
        if actions is self.last_sample:  # just sampled: its probability is not 0
            # At weights 0 and 1, lerp returns an endpoint unchanged; for many rows, it is ten times
            # as fast as where.
            return torch.lerp(self.cost_0, self.cost_1, self._bits).sum(-1).neg_()
        actions = torch.as_tensor(actions, device=self.inputs.device).reshape(self.inputs.shape)
        costs = torch.where(actions.bool(), self.cost_1, self.cost_0).sum(-1)
        # The sum of two forced bits' costs exceeds the dtype's range.
        return costs.clamp_max_(HIGHEST[costs.dtype]).neg_()

    def entropy(self) -> Tensor:
        """Return the sum of the bits' entropies, `[B]`."""
        return self.multi_entropy().sum(-1)

    def multi_entropy(self) -> Tensor:
        """Return the entropy of each bit, `[B, n]`."""
        p, q = self._probs()
        return torch.addcmul(p * self.cost_1, q, self.cost_0)

    def kl(self, other: Any) -> Tensor:
        """Return the sum of the bits' KL divergences, `[B]`."""
        return self.multi_kl(other).sum(-1).clamp_max_(HIGHEST[self.inputs.dtype])

    def multi_kl(self, other: Any) -> Tensor:
        """Return the KL divergence for each bit, `[B, n]`."""
        if type(other) is not type(self):
            same_kind(self, other)
        p, q = self._probs()
        return torch.addcmul(p * (other.cost_1 - self.cost_1), q, other.cost_0 - self.cost_0)

    def _probs(self) -> tuple[Tensor, Tensor]:
        if self._both is None:
            self._both = self.inputs.sigmoid(), self.opposite.sigmoid()
        return self._both

    def moment(self, name: str) -> Tensor:
        p, q = self._probs()
        moments: dict[str, Tensor] = {
            "mean": p,
            "variance": p * q,
            "mode": (self.inputs > 0).long(),
        }
        return moments[name]


#: `logp` treats smaller entries as zero, because their reciprocals, which occur in gradients, may
#: be infinite.
_FLOOR = {torch.float32: 1e-30, torch.float64: 1e-290}


class GumbelSoftmax(TorchDistribution, common.GumbelSoftmaxBase):
    """Relaxed one-hot vectors `[B, n]`, with gradients; see `GumbelSoftmaxBase`."""

    last_sample: Tensor

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        common.check_temperature(temperature)
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        self.temperature = temperature
        logits = to_float32_at_least(self.inputs)
        #: Normalised log probabilities `[B, n]` of the largest entry; finite, and float32 for
        #: half-precision inputs.
        self.log_probs = torch.log_softmax(logits, dim=-1).maximum(LOWEST[logits.dtype])

    def sample(self) -> Tensor:
        """Draw relaxed one-hot vectors `[B, n]`, without gradients."""
        self.last_sample = self.rsample().detach()
        return self.last_sample

    def rsample(self, straight_through: bool = False) -> Tensor:
        """Draw relaxed one-hot vectors `[B, n]`, with gradients.

        Args:
            straight_through: Return exact one-hot vectors instead, with the gradient of the relaxed
                ones.
        """
        noise = torch.empty_like(self.log_probs).exponential_().log()
        soft = torch.softmax((self.log_probs - noise) / self.temperature, dim=-1).to(
            self.inputs.dtype
        )
        if not straight_through:
            return soft
        hard = functional.one_hot(soft.argmax(dim=-1), soft.shape[-1]).to(soft.dtype)
        return hard + (soft - soft.detach())

    def deterministic_sample(self) -> Tensor:
        """Return the one-hot vector `[B, n]` of the most likely value."""
        best = functional.one_hot(self.inputs.argmax(dim=-1), self.inputs.shape[-1])
        self.last_sample = best.to(self.inputs.dtype)
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]`.

        An entry of 0 was too small for the dtype; a sample with such entries lies on a face of the
        simplex. For such a sample, `logp` adds two terms: the log density on the face of the other
        entries, and the log probability that the largest entry is among them. All results are
        finite. Interior points have the log density of the Concrete distribution; exact one-hot
        vectors have the log probability of their value under `Categorical`.

        Args:
            actions: Exact or relaxed one-hot vectors `[B, n]`, or values `[B]` or `[B, 1]`, which
                are treated as one-hot vectors.

        Raises:
            ModelContractError: The actions do not have this shape.
        """
        log_probs, n = self.log_probs, self.log_probs.shape[-1]
        x = torch.as_tensor(actions, device=log_probs.device)
        if x.numel() == log_probs.shape[0] and n > 1:
            x = functional.one_hot(x.long().reshape(-1), n)
        elif x.shape != log_probs.shape:
            raise common.wrong_actions(log_probs.shape, x.shape)
        x = x.to(log_probs.dtype)
        inside = x > _FLOOR[x.dtype]
        count = inside.sum(dim=-1).to(x.dtype)
        log_x = torch.where(inside, x, 1.0).log()
        weights = torch.where(inside, log_probs - self.temperature * log_x, -torch.inf)
        density = (
            torch.lgamma(count)
            + (count - 1) * math.log(self.temperature)
            + torch.where(inside, log_probs - (self.temperature + 1) * log_x, 0.0).sum(dim=-1)
            - count * weights.logsumexp(dim=-1)
        )
        of_face = torch.where(inside, log_probs, -torch.inf).logsumexp(dim=-1)
        lowest = torch.finfo(self.inputs.dtype).min
        return (density + of_face).clamp(lowest, -lowest).to(self.inputs.dtype)


@cached_constant
def _tensors(slates: Slates, device: torch.device) -> tuple[Tensor, ...]:
    """Return the table, the weights, the codes and the order as tensors on a device."""
    # Outside inference mode, so that cached tensors can be used in training.
    with torch.inference_mode(False):
        arrays = (slates.table, slates.weights, slates.codes, slates.order)
        return tuple(torch.as_tensor(array, device=device) for array in arrays)


class SlateMultiCategorical(common.SlateMultiCategoricalBase, Categorical):
    """Distribution over the slates in a list, `[B, k]`; see `SlateMultiCategoricalBase`."""

    @classmethod
    def _allowed(cls, mask: Tensor, columns: Any) -> Tensor:
        return mask.bool()[:, torch.as_tensor(columns, device=mask.device)].all(dim=-1)

    def _slates_of(self, index: Tensor) -> Tensor:
        self.last_sample = _tensors(self.slates, self.inputs.device)[0][index]
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of slates `[B, k]`; for unknown slates, it is the lowest
        finite number.
        """
        _, weights, codes, order = _tensors(self.slates, self.inputs.device)
        items = (
            torch.as_tensor(actions, device=self.inputs.device)
            .long()
            .reshape(self.inputs.shape[0], len(weights))
        )
        code = (items * weights).sum(dim=-1)
        place = torch.searchsorted(codes, code).clamp(max=len(codes) - 1)
        known = (codes[place] == code) & ((items >= 0) & (items < self.slates.items)).all(dim=-1)
        found = self._finite().gather(-1, order[place].unsqueeze(-1)).squeeze(-1)
        return torch.where(known, found, LOWEST[found.dtype])

    as_torch = TorchDistribution.as_torch  # over slates, not over their numbers

    def moment(self, name: str) -> Tensor:
        if name != "mode":
            return super().moment(name)
        return _tensors(self.slates, self.inputs.device)[0][self.inputs.argmax(dim=-1)]
