"""Catalog parts under Stable-Baselines3: policies, a features extractor, flat spaces, conversion."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlcatalog.frameworks import load_first
from rlcatalog_sb3.policy_aliases import enter_names

# Stable-Baselines3 imports TensorBoard where it is installed, and TensorBoard imports TensorFlow.
load_first("triton", before="tensorflow")

_LAZY = {
    "CatalogExtractor": "features",
    "CatalogMaskablePolicy": "maskable",
    "CatalogPolicy": "policies",
    "CatalogRecurrentPolicy": "recurrent",
    "FlattenSpaces": "flat_spaces",
    "RecurrentPPO": "recurrent",
    "export": "conversion",
    "for_sb3": "flat_spaces",
    "outputs": "checks",
    "to_policy": "conversion",
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
    "to_policy",
]

if TYPE_CHECKING:
    from rlcatalog_sb3.checks import outputs
    from rlcatalog_sb3.conversion import export, to_policy
    from rlcatalog_sb3.features import CatalogExtractor
    from rlcatalog_sb3.flat_spaces import FlattenSpaces, for_sb3
    from rlcatalog_sb3.maskable import CatalogMaskablePolicy
    from rlcatalog_sb3.policies import CatalogPolicy
    from rlcatalog_sb3.recurrent import CatalogRecurrentPolicy, RecurrentPPO


# The catalog loads `rlcatalog_sb3.plugin` in every process; PyTorch and Stable-Baselines3 are imported at first use.
def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    enter_names(importing=True)
    return value


def __dir__() -> list[str]:
    return __all__


enter_names(importing=False)
