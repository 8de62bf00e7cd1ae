"""Catalog parts under Stable-Baselines3: policies, a features extractor, flat spaces, export."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlcatalog.frameworks import before_tensorflow

_LAZY = {
    "CatalogExtractor": "features.torch",
    "CatalogMaskablePolicy": "maskable",
    "CatalogPolicy": "policies.torch",
    "CatalogRecurrentPolicy": "recurrent.torch",
    "FlattenSpaces": "wrapper",
    "RecurrentPPO": "recurrent.algorithm",
    "export": "exporting.torch",
    "for_sb3": "wrapper",
    "outputs": "bridge.torch",
}

__all__ = [
    "CatalogExtractor",
    "CatalogMaskablePolicy",
    "CatalogPolicy",
    "CatalogRecurrentPolicy",
    "FlattenSpaces",
    "RecurrentPPO",
    "export",
    "for_sb3",
    "outputs",
]

if TYPE_CHECKING:
    from rlcatalog_sb3.bridge.torch import outputs
    from rlcatalog_sb3.exporting.torch import export
    from rlcatalog_sb3.features.torch import CatalogExtractor
    from rlcatalog_sb3.maskable import CatalogMaskablePolicy
    from rlcatalog_sb3.policies.torch import CatalogPolicy
    from rlcatalog_sb3.recurrent.algorithm import RecurrentPPO
    from rlcatalog_sb3.recurrent.torch import CatalogRecurrentPolicy
    from rlcatalog_sb3.wrapper import FlattenSpaces, for_sb3


# The catalog loads `rlcatalog_sb3.plugin` in every process; PyTorch and Stable-Baselines3 are imported at first use.
def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    before_tensorflow()  # Stable-Baselines3 imports TensorBoard where it is installed, and TensorBoard TensorFlow
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
