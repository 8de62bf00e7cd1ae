"""The categorical distribution as far as no framework is needed: size, options, joining, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution
from rlcatalog.config import read_config
from rlcatalog.errors import ConfigError
from rlcatalog_categorical.config import CategoricalConfig
from rlcatalog_categorical.plugin import rlcatalog_action_dists, size


class CategoricalContract(ActionDistribution):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; the action codec adds a Discrete's `start`.

    Args:
        inputs: Logits `[B, n]`, unnormalised.
        model: The model that made them, or None.
        temperature: Divides the logits; above 1 flattens, below 1 sharpens.
    """

    framework_of_class: ClassVar[str]

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return n."""
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return the temperature, where it is not 1."""
        temperature = read_config(config, CategoricalConfig).categorical_temperature
        return {} if temperature == 1.0 else {"temperature": temperature}

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:
        """Join what has no temperature of its own with other choices; a subclass may mean something else."""
        return "choices" if not options and CategoricalContract in cls.__bases__ else None

    @classmethod
    def side_by_side(cls, members: Sequence[tuple[Mapping[str, Any], int]]) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return a MultiCategorical over all of them."""
        targets = next(spec.targets for spec in rlcatalog_action_dists() if spec.name == "multi_categorical")
        module, _, name = targets[cls.framework_of_class].partition(":")
        # Imported here: it imports this class.
        return getattr(import_module(module), name).side_by_side(members)  # type: ignore[no-any-return]


def wrong_temperature(temperature: float) -> ConfigError:
    """Return what is raised for a temperature that is not positive."""
    return ConfigError(f"temperature must be positive, found {temperature}.")
