"""A value with a memory of its own, in PyTorch."""

from __future__ import annotations

from rlcatalog.models import SeparateValue, ValueSide
from rlcatalog_torch.model import TorchModelV2
from rlcatalog_torch.nn import OutputLayers, features_of


class TorchValueSide(ValueSide, TorchModelV2):
    """What the last pass left for the value; see `rlcatalog.models.ValueSide`."""


class TorchSeparateValue(SeparateValue, TorchModelV2):
    """Two chains side by side; see `rlcatalog.models.SeparateValue`."""

    run_chain = staticmethod(features_of)
    output_layers = OutputLayers
    side = TorchValueSide
