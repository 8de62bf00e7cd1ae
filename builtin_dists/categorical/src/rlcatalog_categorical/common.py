"""Framework-independent code for the distributions over choices: sizes, options, checks and
joining.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from gymnasium import Space
from numpy.typing import ArrayLike

from rlcatalog import ModelV2, SpaceInfo
from rlcatalog.actions import ActionDistribution, BoundDistribution, check_same_kind, shape_method
from rlcatalog.config import read_config
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError
from rlcatalog.frameworks import Array, Tensor, TensorOps, ops_of
from rlcatalog_categorical import plugin
from rlcatalog_categorical.choice_columns import ChoiceColumns, choices
from rlcatalog_categorical.config import (
    CategoricalConfig,
    GumbelSoftmaxConfig,
    QuantilesConfig,
)
from rlcatalog_categorical.slates import Slates, slates_of


class CategoricalBase(ActionDistribution):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; the action codec adds a Discrete's
    `start`.

    Args:
        inputs: Logits `[B, n]`, unnormalised.
        model: The model that computed the inputs, or None.
        temperature: Divisor of the logits. Values above 1 flatten the distribution; values below 1
            sharpen it.
    """

    #: The framework's MultiCategorical: the distribution of several choices.
    joint_class: ClassVar[type[MultiCategoricalBase]]

    required_model_output_shape = staticmethod(shape_method(plugin.size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,  # noqa: ARG003  (ActionDistribution's signature)
        config: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the config's temperature as an option, if it is not 1."""
        temperature = read_config(config, CategoricalConfig).categorical_temperature
        return temperature_option(temperature)

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> str | None:
        """Allow joining with other choices if there is no temperature.

        A user's subclass is not joined, because it may behave differently.
        """
        # This class is a direct base of each framework's own class, and of no user's subclass.
        is_own_class = CategoricalBase in cls.__bases__
        if options or not is_own_class:
            return None
        return "choices"

    @classmethod
    def side_by_side(
        cls, members: Sequence[tuple[Mapping[str, Any], int]]
    ) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return a MultiCategorical over all members."""
        return cls.joint_class.side_by_side(members)


class QuantilesBase(CategoricalBase):
    """Distribution over `{0, …, n-1}` whose logits are the means of n sets of quantiles.

    A quantile network predicts the distribution of the return after each action (QR-DQN, Dabney et
    al. 2018, arXiv 1710.10044). The mean of an action's quantiles is its Q-value, so the most
    likely action is the greedy one.

    Args:
        inputs: Quantiles `[B, num_quantiles · n]`: the first quantile of each action, then the
            second one, and so on.
        model: The model that computed the inputs, or None.
        num_quantiles: Number of quantiles for each action.
    """

    required_model_output_shape = staticmethod(shape_method(plugin.quantiles_size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,  # noqa: ARG003  (ActionDistribution's signature)
        config: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the config's number of quantiles."""
        return {"num_quantiles": read_config(config, QuantilesConfig).num_quantiles}

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Any:
        """Forbid all quantiles of a forbidden action.

        Args:
            inputs: Quantiles `[B, num_quantiles · n]`.
            mask: True where an action is allowed, boolean `[B, n]`.
            **options: `num_quantiles`, as for the constructor.
        """
        mask_columns = tuple(range(mask.shape[-1])) * options["num_quantiles"]
        return super().masked(inputs, ops_of(inputs).columns_at(mask, mask_columns))


def check_quantiles(shape: Sequence[int | None], num_quantiles: int) -> None:
    """Raise an error unless inputs `[B, num_quantiles · n]` have whole sets of quantiles.

    Raises:
        ModelContractError: They do not.
    """
    has_rows = len(shape) == 2
    if not has_rows or not shape[1] or shape[1] % num_quantiles:
        raise ModelContractError(
            f"Quantiles: expected inputs [B, {num_quantiles} · n], {num_quantiles} quantiles for"
            f" each of n values; found shape {tuple(shape)}."
        )


def temperature_option(temperature: float) -> dict[str, Any]:
    """Return a config's temperature as an option, unless it is 1, which changes nothing.

    Without options, a distribution can be joined with others and drawn from without an object.
    """
    if temperature == 1.0:
        return {}
    return {"temperature": temperature}


def check_temperature(temperature: float) -> None:
    """Raise an error unless a temperature is positive.

    Raises:
        ConfigError: The temperature is not positive.
    """
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature must be positive, found {temperature}.")


class MultiCategoricalBase(ActionDistribution):
    """Independent choices `[B, k]`, each starting at 0; the action codec adds the space's lowest
    values.

    Args:
        inputs: Unnormalised logits `[B, Σ input_lens]`, choice by choice.
        model: The model that computed the inputs, or None.
        input_lens: Number of values of each choice: a list, a tuple or an array of any rank, read
            in C order.
        action_space: A MultiDiscrete space or a Box of integers; required without `input_lens`.
    """

    #: The framework's Categorical: the distribution of one choice.
    choice_class: ClassVar[type[CategoricalBase]]
    ops: ClassVar[TensorOps]
    layout: ChoiceColumns

    @property
    def input_lens(self) -> tuple[int, ...]:
        """Number of values of each choice."""
        return self.layout.counts

    required_model_output_shape = staticmethod(shape_method(plugin.multi_size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,
        config: Mapping[str, Any],  # noqa: ARG003  (ActionDistribution's signature)
    ) -> dict[str, Any]:
        """Return `input_lens`."""
        return {"input_lens": plugin.input_lens(action)}

    @classmethod
    def parts(
        cls,
        action: SpaceInfo,
        size: int,  # noqa: ARG003  (ActionDistribution's signature)
        options: Mapping[str, Any],
    ) -> list[tuple[SpaceInfo, Any, int]]:
        """Return each choice as a Discrete space, with its Categorical and its number of values."""
        counts = options["input_lens"]
        spaces = choices(action, counts)
        return [(space, cls.choice_class, n) for space, n in zip(spaces, counts, strict=True)]

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> str | None:
        """Allow joining with any other choices.

        A user's subclass is not joined, because it may behave differently.
        """
        # This class is a direct base of each framework's own class, and of no user's subclass.
        is_own_class = MultiCategoricalBase in cls.__bases__
        has_other_options = set(options) != {"input_lens"}
        if has_other_options or not is_own_class:
            return None
        return "choices"

    @classmethod
    def side_by_side(
        cls, members: Sequence[tuple[Mapping[str, Any], int]]
    ) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one MultiCategorical over all choices; a Categorical counts as one choice."""
        counts: list[int] = []
        columns: list[tuple[int, int, int]] = []
        for i, (options, size) in enumerate(members):
            # Only a Categorical has no counts: it is one choice among all its inputs.
            counts += options.get("input_lens", (size,))
            columns.append((i, 0, size))
        return BoundDistribution(cls, {"input_lens": tuple(counts)}), columns

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the sum of the choices' KL divergences, `[B]`."""
        return self.ops.finite(self.ops.sum(self._divergence_terms(other), axis=(-2, -1)))

    def multi_kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence for each choice, `[B, k]`."""
        return self.ops.finite(self.ops.sum(self._divergence_terms(other), axis=-1))

    def _divergence_terms(self, other: Self) -> Any:
        """Return the terms p (log p - log q), `[B, k, longest]`."""
        raise NotImplementedError


class BernoulliBase(ActionDistribution):
    """Independent bits `[B, n]`, with one logit each: a bit is 1 with probability sigmoid(logit).

    Args:
        inputs: Logits `[B, n]`.
        model: The model that computed the inputs, or None.
    """

    ops: ClassVar[TensorOps]

    def entropy(self) -> Any:
        """Return the sum of the bits' entropies, `[B]`."""
        return self.ops.sum(self.multi_entropy(), axis=-1)

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the sum of the bits' KL divergences, `[B]`."""
        return self.ops.finite(self.ops.sum(self.multi_kl(other), axis=-1))

    required_model_output_shape = staticmethod(shape_method(plugin.bernoulli_size))


def wrong_mask(inputs: Tensor, mask: Tensor) -> ActionMaskError:
    """Return the error for a mask without two columns per bit."""
    return ActionMaskError(
        "Bernoulli: a mask needs two columns per bit (may be 0, may be 1): expected"
        f" {2 * inputs.shape[-1]} columns, found shape {tuple(mask.shape)}."
    )


class GumbelSoftmaxBase(ActionDistribution):
    """Points near the corners of the simplex `[B, n]`, with gradients; the action codec picks the
    largest entry.

    This is the Concrete distribution (Maddison, Mnih and Teh 2016, arXiv 1611.00712; also Jang, Gu
    and Poole 2016, arXiv 1611.01144): softmax((logits + Gumbel noise) / temperature). Neither its
    entropy nor its KL divergence has a closed form. At any temperature, the index of the largest
    entry follows a `Categorical` distribution with the same logits.

    Args:
        inputs: Logits `[B, n]`, unnormalised.
        model: The model that computed the inputs, or None.
        temperature: Relaxation temperature; near 0, samples are close to one-hot vectors.
    """

    raw_kind = "onehot"
    entropy_kind = "estimate"

    required_model_output_shape = staticmethod(shape_method(plugin.gumbel_size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,  # noqa: ARG003  (ActionDistribution's signature)
        config: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the config's temperature as an option, if it is not 1."""
        temperature = read_config(config, GumbelSoftmaxConfig).gumbel_softmax_temperature
        return temperature_option(temperature)


def wrong_actions(expected: Sequence[int], found: Sequence[int]) -> ModelContractError:
    """Return the error for actions that are neither one-hot vectors of the expected shape nor
    single values per row.
    """
    return ModelContractError(
        f"GumbelSoftmax: expected one-hots {tuple(expected)} or values [{expected[0]}], found"
        f" shape {tuple(found)}."
    )


class SlateMultiCategoricalBase(ActionDistribution):
    """Distribution over the slates `[B, k]` in a list, with one logit per slate.

    List this base before a Categorical.

    Args:
        inputs: Logits `[B, S]`, unnormalised.
        model: The model that computed the inputs, or None.
        temperature: Divisor of the logits. Values above 1 flatten the distribution; values below 1
            sharpen it.
        action_space: A MultiDiscrete space of k equal entries n: the slates are the ordered
            selections of k distinct items out of n, in lexicographic order.
        all_slates: A different list of slates, `[S, k]`, or a `Slates` object, which avoids
            converting the list again.
        nvec: The entries `(n,) * k` of the space, instead of `action_space`.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: ModelV2 | None = None,
        temperature: float = 1.0,
        action_space: Space[Any] | None = None,
        all_slates: Slates | ArrayLike | None = None,
        nvec: Sequence[int] | None = None,
    ) -> None:
        super().__init__(inputs, model, temperature)  # type: ignore[call-arg]  # Categorical's
        #: The list of slates.
        self.slates = slates_of(all_slates, nvec, action_space)
        self.slates.check_width(self.inputs.shape)

    required_model_output_shape = staticmethod(shape_method(plugin.slates_size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,
        config: Mapping[str, Any],  # noqa: ARG003  (ActionDistribution's signature)
    ) -> dict[str, Any]:
        """Return `nvec`."""
        return {"nvec": plugin.slate_nvec(action)}

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Any:
        """Forbid each slate that contains a forbidden item.

        Args:
            inputs: Logits `[B, S]`.
            mask: True where an item is allowed, `[B, k · n]`, starting with the items of the first
                place.
            **options: `all_slates`, `nvec` or `action_space`, as for the constructor.

        Raises:
            ActionMaskError: The mask does not have one column per item and place.
        """
        nvec = options.get("nvec")
        slates = slates_of(options.get("all_slates"), nvec, options.get("action_space"))
        columns = slates.columns(nvec, mask.shape[-1])
        return super().masked(inputs, cls._allowed(mask, columns))

    @classmethod
    def _allowed(cls, mask: Tensor, columns: Array) -> Any:
        """Return which slates are allowed, `[B, S]`: a slate is allowed if all its mask columns
        `[S, k]` are True.
        """
        raise NotImplementedError

    def sample(self) -> Any:
        """Sample slates, int64 `[B, k]`."""
        return self._slates_of(super().sample())

    def deterministic_sample(self) -> Any:
        """Return the most likely slates, int64 `[B, k]`."""
        return self._slates_of(super().deterministic_sample())

    def _slates_of(self, index: Tensor) -> Any:
        """Return the slates with the given indices `[B]`, and store them as the last sample."""
        raise NotImplementedError

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence Σ p (log p - log q), `[B]`."""
        check_same_kind(self, other)
        self.slates.check_same(other.slates)
        return super().kl(other)
