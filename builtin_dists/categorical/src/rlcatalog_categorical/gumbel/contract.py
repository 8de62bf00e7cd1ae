"""Relaxed one-hots as far as no framework is needed: size, options, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution
from rlcatalog.config import read_config
from rlcatalog.errors import ModelContractError
from rlcatalog_categorical.config import GumbelSoftmaxConfig
from rlcatalog_categorical.plugin import gumbel_size


class GumbelSoftmaxContract(ActionDistribution):
    """Points of the simplex near its corners `[B, n]`, that gradients flow through; the action codec takes the largest.

    This is the Concrete distribution (Maddison, Mnih and Teh 2016, arXiv 1611.00712; also Jang, Gu and Poole 2016,
    arXiv 1611.01144): softmax((logits + Gumbel noise) / temperature). Neither its entropy nor its divergences have a
    closed form. The largest entry is distributed as `Categorical` of the same logits, whatever the temperature.

    Args:
        inputs: Logits `[B, n]`, unnormalised.
        model: The model that made them, or None.
        temperature: Near 0, draws come close to one-hots.
    """

    raw_kind = "onehot"
    entropy_kind = "estimate"

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return n."""
        return gumbel_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return the temperature, where it is not 1."""
        temperature = read_config(config, GumbelSoftmaxConfig).gumbel_softmax_temperature
        return {} if temperature == 1.0 else {"temperature": temperature}


def wrong_actions(expected: Any, found: Any) -> ModelContractError:
    """Return what is raised for actions that are neither one-hots of the expected shape nor a value per row."""
    return ModelContractError(
        f"GumbelSoftmax: expected one-hots {tuple(expected)} or values [{expected[0]}], found shape {tuple(found)}."
    )
