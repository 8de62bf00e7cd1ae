"""Independent bits as far as no framework is needed: size, and the masks they refuse."""

from __future__ import annotations

from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution
from rlcatalog.errors import ActionMaskError
from rlcatalog_categorical.plugin import bernoulli_size


class BernoulliContract(ActionDistribution):
    """Independent bits `[B, n]` from a logit each: a bit is 1 with probability sigmoid(logit).

    Args:
        inputs: Logits `[B, n]`.
        model: The model that made them, or None.
    """

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the number of bits."""
        return bernoulli_size(SpaceInfo.read(action_space, "action"), model_config or {})


def wrong_mask(inputs: Any, mask: Any) -> ActionMaskError:
    """Return what is raised for a mask that has not two columns per bit."""
    return ActionMaskError(
        f"Bernoulli: a mask has two columns per bit (may be 0, may be 1): expected {2 * inputs.shape[-1]} columns,"
        f" found shape {tuple(mask.shape)}."
    )
