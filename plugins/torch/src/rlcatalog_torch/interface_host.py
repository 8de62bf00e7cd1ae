"""Host of a `model_interface`, in PyTorch."""

from __future__ import annotations

from rlcatalog.models import ModelWrapper
from rlcatalog_torch.model import TorchModelV2


class TorchHost(ModelWrapper, TorchModelV2):
    """A PyTorch model that holds another one; see `rlcatalog.models.Host`."""
