"""Observation filters of rlcatalog.

`from rlcatalog_filters import MeanStdFilter, NoFilter, RunningStat`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog_filters.encoded import EncodedMeanStdFilter
    from rlcatalog_filters.mean_std import MeanStdFilter, NoFilter
    from rlcatalog_filters.running_stat import RunningStat

_MODULES = {
    "EncodedMeanStdFilter": "encoded",
    "MeanStdFilter": "mean_std",
    "NoFilter": "mean_std",
    "RunningStat": "running_stat",
}

__all__ = ["EncodedMeanStdFilter", "MeanStdFilter", "NoFilter", "RunningStat"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # loading the plugin's declarations must not import numpy
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
