"""Several independent choices as far as no framework is needed: size, options, parts and joining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, BoundDistribution, DistPart
from rlcatalog_categorical.multi.choice_columns import ChoiceColumns, choices
from rlcatalog_categorical.plugin import input_lens as lens_of_space, multi_size


class MultiCategoricalContract(ActionDistribution):
    """Independent choices `[B, k]`, each counting from 0; the action codec adds a space's lowest values.

    Args:
        inputs: Logits `[B, Σ input_lens]`, unnormalised, those of the first choice first.
        model: The model that made them, or None.
        input_lens: Number of values of each choice: a list, tuple or array (of any rank, read in C order).
        action_space: A MultiDiscrete space or a Box of integers to take them from when they are missing.
    """

    #: The framework's Categorical: the distribution of one choice.
    choice: ClassVar[Any]
    layout: ChoiceColumns

    @property
    def input_lens(self) -> tuple[int, ...]:
        """Number of values of each choice."""
        return self.layout.lens

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the sum of the numbers of values."""
        return multi_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return `input_lens`."""
        return {"input_lens": lens_of_space(action)}

    @classmethod
    def parts(cls, action: SpaceInfo, size: int, options: Mapping[str, Any]) -> list[DistPart]:
        return [DistPart(choice, cls.choice, choice.n or 0) for choice in choices(action, options["input_lens"])]

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:
        """Join all choices; a subclass may mean something else."""
        return "choices" if set(options) == {"input_lens"} and MultiCategoricalContract in cls.__bases__ else None

    @classmethod
    def side_by_side(cls, members: Sequence[tuple[Mapping[str, Any], int]]) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one MultiCategorical over all choices; a Categorical is one choice."""
        lens = tuple(n for options, size in members for n in options.get("input_lens", (size,)))
        return BoundDistribution(cls, {"input_lens": lens}), [(i, 0, size) for i, (_, size) in enumerate(members)]
