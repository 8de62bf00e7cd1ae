"""The kernel's models around other models, in PyTorch: a `model_interface`, and a value with a memory of its own."""

from __future__ import annotations

from rlcatalog.models import ModelWrapper, SeparateValue
from rlcatalog_torch.model import TorchModelV2
from rlcatalog_torch.nn import OutputLayers, features_of


class TorchHost(ModelWrapper, TorchModelV2):
    """A PyTorch model that holds another one; see `rlcatalog.models.ModelWrapper`."""


class TorchSeparateValue(SeparateValue, TorchModelV2):
    """Two chains side by side; see `rlcatalog.models.SeparateValue`."""

    run_chain = staticmethod(features_of)
    output_layers = OutputLayers
