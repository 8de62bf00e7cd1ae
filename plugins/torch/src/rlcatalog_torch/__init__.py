"""PyTorch: base classes for models, building blocks, and the classes of installed parts by name.

`from rlcatalog_torch import TorchModelV2, FullyConnectedNetwork, Categorical, normc_initializer`
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from rlcatalog.frameworks import require_framework
from rlcatalog.plugins import part_class, part_classes
from rlcatalog_torch.load_order import guard_triton

guard_triton()

_own, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return part_class(__name__, name, "torch")
    require_framework("torch")
    return _own(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *part_classes("torch")})
