"""Host of a `model_interface`, in TensorFlow."""

from __future__ import annotations

from rlcatalog.models import ModelWrapper
from rlcatalog_tf.model import TFModelV2


class TFHost(ModelWrapper, TFModelV2):
    """A TensorFlow model that holds another one; see `rlcatalog.models.Host`."""
