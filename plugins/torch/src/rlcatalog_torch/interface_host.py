"""Host of a `model_interface`, in PyTorch."""

from __future__ import annotations

from rlcatalog.models import Host
from rlcatalog_torch.model import TorchModelV2


class TorchHost(Host, TorchModelV2):
    """A PyTorch model that holds another one; see `rlcatalog.models.Host`."""
