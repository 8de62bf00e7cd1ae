"""Framework-independent code for the distributions over choices: sizes, options, checks and
joining.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, BoundDistribution, same_kind, shape_method
from rlcatalog.config import read_config
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError
from rlcatalog.frameworks import TensorOps
from rlcatalog_categorical import plugin
from rlcatalog_categorical.choice_columns import ChoiceColumns, choices
from rlcatalog_categorical.config import CategoricalConfig, GumbelSoftmaxConfig
from rlcatalog_categorical.slates import slates_of


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
    joint: ClassVar[Any]

    required_model_output_shape = staticmethod(shape_method(plugin.size))

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config's temperature as an option, if it is not 1."""
        temperature = read_config(config, CategoricalConfig).categorical_temperature
        return {} if temperature == 1.0 else {"temperature": temperature}

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:
        """Allow joining with other choices if there is no temperature; a subclass may behave
        differently.
        """
        return "choices" if not options and CategoricalBase in cls.__bases__ else None

    @classmethod
    def side_by_side(
        cls, members: Sequence[tuple[Mapping[str, Any], int]]
    ) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return a MultiCategorical over all members."""
        return cls.joint.side_by_side(members)  # type: ignore[no-any-return]


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
    choice: ClassVar[Any]
    ops: ClassVar[TensorOps]
    layout: ChoiceColumns

    @property
    def input_lens(self) -> tuple[int, ...]:
        """Number of values of each choice."""
        return self.layout.lens

    required_model_output_shape = staticmethod(shape_method(plugin.multi_size))

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return `input_lens`."""
        return {"input_lens": plugin.input_lens(action)}

    @classmethod
    def parts(
        cls, action: SpaceInfo, size: int, options: Mapping[str, Any]
    ) -> list[tuple[SpaceInfo, Any, int]]:
        return [
            (choice, cls.choice, choice.n or 0) for choice in choices(action, options["input_lens"])
        ]

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:
        """Allow joining with any other choices; a subclass may behave differently."""
        return (
            "choices"
            if set(options) == {"input_lens"} and MultiCategoricalBase in cls.__bases__
            else None
        )

    @classmethod
    def side_by_side(
        cls, members: Sequence[tuple[Mapping[str, Any], int]]
    ) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one MultiCategorical over all choices; a Categorical counts as one choice."""
        lens = tuple(n for options, size in members for n in options.get("input_lens", (size,)))
        return BoundDistribution(cls, {"input_lens": lens}), [
            (i, 0, size) for i, (_, size) in enumerate(members)
        ]

    def kl(self, other: Any) -> Any:
        """Return the sum of the choices' KL divergences, `[B]`."""
        return self.ops.finite(self.ops.sum(self._divergences(other), axis=(-2, -1)))

    def multi_kl(self, other: Any) -> Any:
        """Return the KL divergence for each choice, `[B, k]`."""
        return self.ops.finite(self.ops.sum(self._divergences(other), axis=-1))

    def _divergences(self, other: Any) -> Any:
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

    def kl(self, other: Any) -> Any:
        """Return the sum of the bits' KL divergences, `[B]`."""
        return self.ops.finite(self.ops.sum(self.multi_kl(other), axis=-1))

    required_model_output_shape = staticmethod(shape_method(plugin.bernoulli_size))


def wrong_mask(inputs: Any, mask: Any) -> ActionMaskError:
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
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config's temperature as an option, if it is not 1."""
        temperature = read_config(config, GumbelSoftmaxConfig).gumbel_softmax_temperature
        return {} if temperature == 1.0 else {"temperature": temperature}


def wrong_actions(expected: Any, found: Any) -> ModelContractError:
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
        inputs: Any,
        model: Any = None,
        temperature: float = 1.0,
        action_space: Any = None,
        all_slates: Any = None,
        nvec: Sequence[int] | None = None,
    ) -> None:
        super().__init__(inputs, model, temperature)  # type: ignore[call-arg]  # Categorical's
        #: The list of slates.
        self.slates = slates_of(all_slates, nvec, action_space)
        self.slates.check_width(self.inputs.shape)

    required_model_output_shape = staticmethod(shape_method(plugin.slates_size))

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return `nvec`."""
        return {"nvec": plugin.slate_nvec(action)}

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
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
        return super().masked(inputs, cls._allowed(mask, slates.columns(nvec, mask.shape[-1])))

    @classmethod
    def _allowed(cls, mask: Any, columns: Any) -> Any:
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

    def _slates_of(self, index: Any) -> Any:
        """Return the slates with the given indices `[B]`, and store them as the last sample."""
        raise NotImplementedError

    def kl(self, other: Any) -> Any:
        """Return the KL divergence Σ p (log p - log q), `[B]`."""
        same_kind(self, other)
        self.slates.same_as(other.slates)
        return super().kl(other)
