"""Distributions over choices in PyTorch: one or several choices, bits, relaxed one-hot vectors,
slates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import ArrayLike
from torch import Tensor, distributions
from torch.nn import functional

from rlcatalog import ModelV2
from rlcatalog.actions import check_same_kind
from rlcatalog.frameworks import Array
from rlcatalog_categorical import common
from rlcatalog_categorical.choice_columns import counts_of, layout_of
from rlcatalog_categorical.slates import Slates
from rlcatalog_torch import HALF, OPS, TorchDistribution, limits_of, to_float32_at_least
from rlcatalog_torch.private_api import cached_constant


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature into a new tensor; masked values stay masked, and all logits
    stay finite.

    Raises:
        ConfigError: The temperature is not positive.
    """
    common.check_temperature(temperature)
    limits = torch.finfo(logits.dtype)
    quotients = (logits / temperature).clamp(limits.min, limits.max)
    # A mask has set the logits of forbidden values to the lowest finite number.
    is_allowed = logits > limits.min
    return torch.where(is_allowed, quotients, limits.min)


def race(probs: Tensor) -> Tensor:
    """Sample an index `[..., 1]` from probabilities `[..., n]`: the argmin of exponential
    variables, each divided by its probability.

    The exponential variables are minus the logs of uniform numbers, which is much faster than
    `exponential_`. The uniform numbers start at 1e-30, so that their logs are finite and values
    with probability 0 never win.
    """
    if probs.dtype is not torch.float32:  # in half precision, the variables may round to 0
        probs = to_float32_at_least(probs)
    logs = torch.empty_like(probs).uniform_(1e-30, 1.0).log_()
    # Because the logs are negative, -log / p is smallest where p / log is smallest.
    return (probs / logs).argmin(dim=-1, keepdim=True)


class _Choices(TorchDistribution):
    """Normalised log probabilities `[..., n]` of choices, and quantities that are derived from them
    on first use.
    """

    log_probs: Tensor
    last_sample: Tensor
    #: The last sample with a trailing axis, `[..., 1]`, as `gather` needs it.
    _index: Tensor
    # The results of `_finite_log_probs` and `_probs`.
    _cached_log_probs: Tensor | None = None
    _exp: Tensor | None = None

    def _remember(self, index: Tensor) -> Tensor:
        """Store a sample `[..., 1]`, because its log probability is usually asked for next, and
        return it without its last axis.
        """
        self._index = index
        self.last_sample = index.squeeze(-1)
        return self.last_sample

    def _finite_log_probs(self) -> Tensor:
        """Return the log probabilities with the lowest finite value instead of -inf, so that
        0 · log 0 is not NaN.
        """
        if self._cached_log_probs is None:
            self._cached_log_probs = self.log_probs.clamp_min(limits_of(self.log_probs).lowest)
        return self._cached_log_probs

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

    def __init__(
        self, inputs: Tensor | Array, model: ModelV2 | None = None, temperature: float = 1.0
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        # Engines store the model's outputs, and rebuild the distribution with its temperature.
        self.inputs = inputs
        self.model = model
        logits = inputs
        if temperature != 1.0:
            logits = tempered(inputs, temperature)
        #: Normalised log probabilities `[B, n]`.
        self.log_probs: Tensor = logits.log_softmax(-1)

    @classmethod
    def draw(cls, inputs: Tensor, model: ModelV2 | None = None, **options: Any) -> Any:
        """Sample int64 `[B]` from the logits, without the steps that only densities need."""
        # A subclass may sample in another way.
        if options or cls is not Categorical:
            return super().draw(inputs, model, **options)
        return race(inputs.softmax(-1)).squeeze(-1)

    def deterministic_sample(self) -> Tensor:
        """Return the most likely value, int64 `[B]`."""
        return self._remember(self.inputs.argmax(dim=-1, keepdim=True))

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log probability `[B]` of values with shape `[B]` or `[B, 1]`."""
        # A value that was just sampled is not forbidden, so its log probability is finite.
        if actions is self.last_sample:
            return self.log_probs.gather(-1, self._index).squeeze(-1)
        index = torch.as_tensor(actions, device=self.inputs.device).long().reshape(-1, 1)
        return self._finite_log_probs().gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return the entropy -Σ p log p, `[B]`."""
        return (self._probs() * self._finite_log_probs()).sum(-1).neg_()

    def kl(self, other: Self) -> Tensor:  # type: ignore[override]  # of the same kind
        """Return the KL divergence Σ p (log p - log q), `[B]`."""
        # Equal types, the usual case, need no call; `check_same_kind` also accepts a subclass.
        if type(other) is not type(self):
            check_same_kind(self, other)
        divergence: Tensor = self._probs() * (self._finite_log_probs() - other._finite_log_probs())
        return divergence.sum(-1)

    def as_torch(self) -> distributions.Distribution:
        """Return the distribution of PyTorch with the same probabilities."""
        return distributions.Categorical(logits=self.log_probs, validate_args=False)


class Quantiles(Categorical, common.QuantilesBase):
    """Distribution over `{0, …, n-1}` from quantiles `[B, num_quantiles · n]`; see
    `QuantilesBase`.
    """

    def __init__(
        self, inputs: Tensor | Array, model: ModelV2 | None = None, num_quantiles: int = 200
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        common.check_quantiles(inputs.shape, num_quantiles)
        #: Quantiles `[B, num_quantiles, n]`.
        self.quantiles = inputs.reshape(inputs.shape[0], num_quantiles, -1)
        means = self.quantiles.mean(dim=1)
        # A mask sets quantiles to the lowest finite number, whose sum is infinite.
        super().__init__(means.clamp_min(limits_of(means).lowest), model)
        self.inputs = inputs

    def deterministic_sample(self) -> Tensor:
        """Return the value with the highest mean, int64 `[B]`."""
        return self._remember(self.log_probs.argmax(dim=-1, keepdim=True))


#: `layout_of`, whose result is a constant for `torch.compile`.
_layout_of = cached_constant(layout_of)


@cached_constant
def _padded_columns_and_bias(
    counts: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return, for each place `[k · longest]`, its column of the logits and the number to add there.

    Places after the last value of a shorter choice are padding: they take some column of the
    logits, and adding -inf removes its value. Elsewhere the number is 0.
    """
    layout = layout_of(counts)
    # Outside inference mode, so that cached tensors can be used in training.
    with torch.inference_mode(mode=False):
        columns = torch.as_tensor(layout.padded_columns, device=device)
        is_padding = columns == layout.total
        zeros = torch.zeros(columns.shape, dtype=dtype, device=device)
        return columns.clamp(max=layout.total - 1), zeros.masked_fill_(is_padding, -torch.inf)


class MultiCategorical(_Choices, common.MultiCategoricalBase):
    """Independent choices `[B, k]`, each starting at 0; see `MultiCategoricalBase`."""

    choice_class = Categorical

    def __init__(
        self,
        inputs: Tensor | Array,
        model: ModelV2 | None = None,
        input_lens: ArrayLike | None = None,
        action_space: Space[Any] | None = None,
    ) -> None:
        # The catalog passes a tuple, which needs no conversion; a user may pass a list.
        if not isinstance(input_lens, tuple):
            input_lens = counts_of(input_lens, action_space)
        layout = _layout_of(input_lens)
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        shape = inputs.shape
        if len(shape) != 2 or shape[1] != layout.total:
            raise layout.wrong_width(shape)
        self.layout = layout
        self.inputs = inputs
        self.model = model
        if layout.padded_columns is None:  # all choices have the same number of values
            logits = inputs
        else:
            # The bias is -inf in the padding, and 0 elsewhere.
            columns, bias = _padded_columns_and_bias(layout.counts, inputs.dtype, inputs.device)
            logits = inputs.index_select(1, columns).add_(bias)
        logits = logits.view(shape[0], len(layout.counts), layout.longest)
        #: Normalised log probabilities `[B, k, longest]`; -inf in the padding of shorter choices.
        self.log_probs = logits.log_softmax(-1)

    def deterministic_sample(self) -> Tensor:
        """Return the most likely values, int64 `[B, k]`."""
        return self._remember(self.log_probs.argmax(-1, keepdim=True))

    def logp(self, actions: Tensor | Array | Sequence[Tensor | Array]) -> Tensor:
        """Return the log probability `[B]`, summed over the choices.

        Args:
            actions: `[B, k]` or `[B, *shape]` in C order, or a list of k tensors or arrays `[B]`.
        """
        # Values that were just sampled are not forbidden, so their log probabilities are finite.
        if actions is self.last_sample:
            return self.log_probs.gather(-1, self._index).sum((-2, -1))
        log_probs = self._finite_log_probs().gather(-1, self._indices(actions)).sum((-2, -1))
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        return log_probs.clamp_min_(limits_of(log_probs).lowest)

    def _indices(self, actions: Tensor | Array | Sequence[Tensor | Array]) -> Tensor:
        """Return actions in any form as int64 `[B, k, 1]`."""
        device = self.inputs.device
        # The caller's tensors or arrays, one for each choice; nested lists of numbers are rows.
        if isinstance(actions, list | tuple) and actions and hasattr(actions[0], "shape"):
            columns = [torch.as_tensor(column, device=device).reshape(-1) for column in actions]
            values = torch.stack(columns, dim=1)
        else:
            values = torch.as_tensor(actions, device=device)
        rows = self.inputs.shape[0]
        self.layout.check_actions(values.shape, rows)
        return values.long().reshape(rows, len(self.layout.counts), 1)

    def entropy(self) -> Tensor:
        """Return the sum of the choices' entropies, `[B]`."""
        return (self._probs() * self._finite_log_probs()).sum((-2, -1)).neg_()

    def multi_entropy(self) -> Tensor:
        """Return the entropy of each choice, `[B, k]`."""
        return (self._probs() * self._finite_log_probs()).sum(-1).neg_()

    def kl(self, other: Self) -> Tensor:  # type: ignore[override]  # of the same kind
        """Return the sum of the choices' KL divergences, `[B]`."""
        return (
            self._divergence_terms(other)
            .sum((-2, -1))
            .clamp_max_(limits_of(self.log_probs).highest)
        )

    def _divergence_terms(self, other: Self) -> Tensor:
        """Return the terms p (log p - log q), `[B, k, longest]`."""
        # Equal types, the usual case, need no call; `check_same_kind` also accepts a subclass.
        if type(other) is not type(self):
            check_same_kind(self, other)
        if other.layout is not self.layout:
            self.layout.check_same(other.layout)
        return self._probs() * (self._finite_log_probs() - other._finite_log_probs())

    def as_torch(self) -> distributions.Distribution:
        """Return the distribution of PyTorch with the same probabilities."""
        choices = distributions.Categorical(logits=self.log_probs, validate_args=False)
        return distributions.Independent(choices, 1)


Categorical.joint_class = MultiCategorical


#: Above this input, softplus is the input itself, exactly.
_LINEAR = 40


class Bernoulli(TorchDistribution, common.BernoulliBase):
    """Independent bits `[B, n]`, with one logit each; see `BernoulliBase`."""

    last_sample: Tensor

    #: The last sample in the inputs' dtype.
    _bits: Tensor
    # Probabilities of 1 and of 0, computed on first use.
    _both: tuple[Tensor, Tensor] | None = None

    def __init__(self, inputs: Tensor | Array, model: ModelV2 | None = None) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        self.inputs = inputs
        self.model = model
        #: The inputs for bits of the opposite meaning.
        self.opposite = -inputs
        #: Negative log probabilities `[B, n]` of 1 and of 0; finite. Stable: log(1 - p) would lose
        #: small probabilities. The last two arguments are `beta` and `threshold`.
        self.cost_1 = functional.softplus(self.opposite, 1, _LINEAR)
        self.cost_0 = functional.softplus(inputs, 1, _LINEAR)

    @classmethod
    def masked(
        cls,
        inputs: Tensor,
        mask: Tensor,
        **options: Any,  # noqa: ARG003  (ActionDistribution's signature)
    ) -> Tensor:
        """Apply a mask `[B, 2n]`, which says for each bit whether it may be 0 and whether it may be
        1.

        Raises:
            ActionMaskError: The mask does not have two columns per bit.
        """
        if mask.shape[-1] != 2 * inputs.shape[-1]:
            raise common.wrong_mask(inputs, mask)
        forbidden = ~mask.bool()
        forbids_0 = forbidden[:, ::2]
        forbids_1 = forbidden[:, 1::2]
        inputs = inputs.masked_fill(forbids_0, limits_of(inputs).highest)
        return inputs.masked_fill(forbids_1, limits_of(inputs).lowest)

    def sample(self) -> Tensor:
        """Sample int64 `[B, n]`."""
        p_1, _ = self._probs()  # the second is the probability of 0
        if p_1.requires_grad:
            p_1 = p_1.detach()
        # A uniform number in [0, 1) is never below p = 0, and always below p = 1. Half precision
        # would be too coarse for it.
        if p_1.dtype in HALF:
            uniform = torch.rand_like(p_1, dtype=torch.float32)
            return self._remember(uniform.lt_(p_1).type_as(p_1))
        return self._remember(torch.rand_like(p_1).lt_(p_1))

    def deterministic_sample(self) -> Tensor:
        """Return the most likely bits, int64 `[B, n]`; 0 where both are equally likely."""
        return self._remember((self.inputs > 0).type_as(self.inputs))

    def _remember(self, bits: Tensor) -> Tensor:
        """Store a sample, because its log probability is usually asked for next, and return it as
        integers.
        """
        self._bits = bits
        self.last_sample = bits.long()
        return self.last_sample

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log probability `[B]` of bits `[B, n]` or `[B, *shape]`, summed
        over the bits.
        """
        # Bits that were just sampled are not forbidden, so the sum of their costs is finite.
        if actions is self.last_sample:
            # At weights 0 and 1, lerp returns an endpoint unchanged; for many rows, it is ten times
            # as fast as where.
            return torch.lerp(self.cost_0, self.cost_1, self._bits).sum(-1).neg_()
        bits = torch.as_tensor(actions, device=self.inputs.device).reshape(self.inputs.shape)
        costs = torch.where(bits.bool(), self.cost_1, self.cost_0).sum(-1)
        # The sum of two forced bits' costs exceeds the dtype's range.
        return costs.clamp_max_(limits_of(costs).highest).neg_()

    def entropy(self) -> Tensor:
        """Return the sum of the bits' entropies, `[B]`."""
        return self.multi_entropy().sum(-1)

    def multi_entropy(self) -> Tensor:
        """Return the entropy of each bit, `[B, n]`."""
        p_1, p_0 = self._probs()
        return torch.addcmul(p_1 * self.cost_1, p_0, self.cost_0)

    def kl(self, other: Self) -> Tensor:  # type: ignore[override]  # of the same kind
        """Return the sum of the bits' KL divergences, `[B]`."""
        return self.multi_kl(other).sum(-1).clamp_max_(limits_of(self.inputs).highest)

    def multi_kl(self, other: Self) -> Tensor:  # type: ignore[override]  # of the same kind
        """Return the KL divergence for each bit, `[B, n]`."""
        # Equal types, the usual case, need no call; `check_same_kind` also accepts a subclass.
        if type(other) is not type(self):
            check_same_kind(self, other)
        p_1, p_0 = self._probs()
        return torch.addcmul(p_1 * (other.cost_1 - self.cost_1), p_0, other.cost_0 - self.cost_0)

    def _probs(self) -> tuple[Tensor, Tensor]:
        """Return the probabilities of 1 and of 0."""
        if self._both is None:
            self._both = self.inputs.sigmoid(), self.opposite.sigmoid()
        return self._both

    def moment(self, name: str) -> Tensor:
        """Return the mean, the variance or the mode of the bits."""
        p_1, p_0 = self._probs()
        if name == "mean":
            return p_1
        if name == "variance":
            return p_1 * p_0
        return (self.inputs > 0).long()  # type: ignore[no-any-return]


#: `logp` treats smaller entries as zero, because their reciprocals, which occur in gradients, may
#: be infinite.
_FLOOR = {torch.float32: 1e-30, torch.float64: 1e-290}


class GumbelSoftmax(TorchDistribution, common.GumbelSoftmaxBase):
    """Relaxed one-hot vectors `[B, n]`, with gradients; see `GumbelSoftmaxBase`."""

    last_sample: Tensor

    def __init__(
        self, inputs: Tensor | Array, model: ModelV2 | None = None, temperature: float = 1.0
    ) -> None:
        common.check_temperature(temperature)
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs, model)
        self.temperature = temperature
        logits = to_float32_at_least(inputs)
        #: Normalised log probabilities `[B, n]` of the largest entry; finite, and float32 for
        #: half-precision inputs.
        self.log_probs = torch.log_softmax(logits, dim=-1).maximum(limits_of(logits).lowest)

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
        # Minus the log of an exponential variable is Gumbel noise.
        log_exponential = torch.empty_like(self.log_probs).exponential_().log()
        relaxed = torch.softmax((self.log_probs - log_exponential) / self.temperature, dim=-1)
        relaxed = relaxed.to(self.inputs.dtype)
        if not straight_through:
            return relaxed
        exact = functional.one_hot(relaxed.argmax(dim=-1), relaxed.shape[-1]).to(relaxed.dtype)
        # The difference is zero, but has the gradient of the relaxed vectors.
        return exact + (relaxed - relaxed.detach())

    def deterministic_sample(self) -> Tensor:
        """Return the one-hot vector `[B, n]` of the most likely value."""
        best = functional.one_hot(self.inputs.argmax(dim=-1), self.inputs.shape[-1])
        self.last_sample = best.to(self.inputs.dtype)
        return self.last_sample

    def logp(self, actions: Tensor | Array) -> Tensor:
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
        log_probs = self.log_probs
        temperature = self.temperature
        x = self._vectors(actions)
        is_inside = x > _FLOOR[x.dtype]  # smaller entries count as 0
        count = is_inside.sum(dim=-1).to(x.dtype)
        log_x = torch.where(is_inside, x, 1.0).log()
        # The density of the Concrete distribution over the entries that are not 0, as a log:
        # (count - 1)! temperature^(count - 1) Π p x^-(temperature + 1) / (Σ p x^-temperature)^count
        terms = torch.where(is_inside, log_probs - temperature * log_x, -torch.inf)
        products = torch.where(is_inside, log_probs - (temperature + 1) * log_x, 0.0)
        density = (
            torch.lgamma(count)
            + (count - 1) * math.log(temperature)
            + products.sum(dim=-1)
            - count * terms.logsumexp(dim=-1)
        )
        log_prob_of_face = torch.where(is_inside, log_probs, -torch.inf).logsumexp(dim=-1)
        largest = torch.finfo(self.inputs.dtype).max
        return (density + log_prob_of_face).clamp(-largest, largest).to(self.inputs.dtype)

    def _vectors(self, actions: Tensor | Array) -> Tensor:
        """Return actions in any form as exact or relaxed one-hot vectors `[B, n]`.

        Raises:
            ModelContractError: The actions have a different shape.
        """
        rows, n = self.log_probs.shape
        vectors = torch.as_tensor(actions, device=self.log_probs.device)
        has_one_value_per_row = vectors.numel() == rows and n > 1
        if has_one_value_per_row:
            vectors = functional.one_hot(vectors.long().reshape(-1), n)
        elif vectors.shape != self.log_probs.shape:
            raise common.wrong_actions(self.log_probs.shape, vectors.shape)
        return vectors.to(self.log_probs.dtype)


@cached_constant
def _table(slates: Slates, device: torch.device) -> Tensor:
    """Return the slates `[S, k]` as a tensor on a device."""
    # Outside inference mode, so that cached tensors can be used in training.
    with torch.inference_mode(mode=False):
        return torch.as_tensor(slates.table, device=device)


@cached_constant
def _numbers(slates: Slates, device: torch.device) -> tuple[Tensor, ...]:
    """Return what finds a slate by its number, as tensors on a device: the weights that give its
    number, all numbers in order, and the slates' indices in this order.
    """
    # Outside inference mode, so that cached tensors can be used in training.
    with torch.inference_mode(mode=False):
        arrays = (slates.weights, slates.codes, slates.order)
        return tuple(torch.as_tensor(array, device=device) for array in arrays)


class SlateMultiCategorical(common.SlateMultiCategoricalBase, Categorical):
    """Distribution over the slates in a list, `[B, k]`; see `SlateMultiCategoricalBase`."""

    @classmethod
    def _allowed(cls, mask: Tensor, columns: Array) -> Tensor:  # type: ignore[override]  # PyTorch's tensors
        # `columns` is `[S, k]`: the columns of each slate's items.
        places = OPS.constant(np.asarray(columns, np.int64), mask)
        return mask.bool()[:, places].all(dim=-1)

    def _slates_of(self, index: Tensor) -> Tensor:  # type: ignore[override]  # PyTorch's tensors
        self.last_sample = _table(self.slates, self.inputs.device)[index]
        return self.last_sample

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log probability `[B]` of slates `[B, k]`; for unknown slates, it is the lowest
        finite number.
        """
        device = self.inputs.device
        weights, codes, order = _numbers(self.slates, device)
        items = torch.as_tensor(actions, device=device).long()
        items = items.reshape(self.inputs.shape[0], len(weights))
        code = (items * weights).sum(dim=-1)
        # Where the slate's number is among the sorted numbers, if it is known.
        place = torch.searchsorted(codes, code).clamp(max=len(codes) - 1)
        # Items out of range could add up to the number of a different slate.
        has_known_items = ((items >= 0) & (items < self.slates.items)).all(dim=-1)
        is_known = (codes[place] == code) & has_known_items
        log_probs = self._finite_log_probs().gather(-1, order[place].unsqueeze(-1)).squeeze(-1)
        return torch.where(is_known, log_probs, limits_of(log_probs).lowest)

    as_torch = TorchDistribution.as_torch  # over slates, not over their numbers

    def moment(self, name: str) -> Tensor:
        """Return the most likely slates; slates have no mean and no variance."""
        if name != "mode":
            return super().moment(name)
        best = self.inputs.argmax(dim=-1)
        return _table(self.slates, self.inputs.device)[best]
