"""The kernel's models around other models, in TensorFlow: a `model_interface`, and a value with a memory of its own."""

from __future__ import annotations

from rlcatalog.models import ModelWrapper, SeparateValue
from rlcatalog_tf.model import TFModelV2
from rlcatalog_tf.nn import OutputLayers, features_of


class TFHost(ModelWrapper, TFModelV2):
    """A TensorFlow model that holds another one; see `rlcatalog.models.ModelWrapper`."""


class TFSeparateValue(SeparateValue, TFModelV2):
    """Two chains side by side; see `rlcatalog.models.SeparateValue`."""

    run_chain = staticmethod(features_of)
    output_layers = OutputLayers

    value_function = SeparateValue.value_function  # which `TFModelV2` completes in the classes that define it
