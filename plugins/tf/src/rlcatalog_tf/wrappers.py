"""The kernel's models around other models, in TensorFlow: a `model_interface`, and a value with a memory of its own."""

from __future__ import annotations

from typing import Any

from rlcatalog.models import ModelWrapper, SeparateValue, ValueSide
from rlcatalog_tf.model import TFModelV2
from rlcatalog_tf.nn import OutputLayers, features_of


class TFHost(ModelWrapper, TFModelV2):
    """A TensorFlow model that holds another one; see `rlcatalog.models.ModelWrapper`."""


class TFValueSide(ValueSide, TFModelV2):
    """What the last pass left for the value; see `rlcatalog.models.ValueSide`."""


class TFSeparateValue(SeparateValue, TFModelV2):
    """Two chains side by side; see `rlcatalog.models.SeparateValue`."""

    run_chain = staticmethod(features_of)
    output_layers = OutputLayers
    side = TFValueSide

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return super().value_function()
