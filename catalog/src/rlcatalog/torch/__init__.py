"""PyTorch: base classes for models, building blocks, and the installed parts' classes by name.

`from rlcatalog.torch import TorchModelV2, FullyConnectedNetwork, Categorical, normc_initializer`
"""

from __future__ import annotations

from typing import Any

from rlcatalog.exports import lookup, names
from rlcatalog.registry import require_framework

require_framework("torch")

_OWN = {
    "TorchModelV2": "rlcatalog.torch.model",
    "RecurrentNetwork": "rlcatalog.torch.model",
    "Outputs": "rlcatalog.torch.nn",
    "add_time_dimension": "rlcatalog.torch.sequences",
    "sequence_mask": "rlcatalog.torch.sequences",
    "DenseStack": "rlcatalog.torch.nn",
    "FreeLogStd": "rlcatalog.torch.nn",
    "activation": "rlcatalog.torch.nn",
    "dense": "rlcatalog.torch.nn",
    "initialize": "rlcatalog.torch.nn",
    "normc_initializer": "rlcatalog.torch.nn",
}


def __getattr__(name: str) -> Any:
    return lookup(__name__, name, _OWN, "torch")


def __dir__() -> list[str]:
    return names(_OWN, "torch")
