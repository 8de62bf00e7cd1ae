"""Catalog parts for Stable-Baselines3: policies, a features extractor, flat spaces
and conversion.
"""

from typing import Any

import lazy_loader

from rlcatalog.frameworks import load_first
from rlcatalog_sb3.algorithms import enter_names, refuse_import_of_algorithm

# Stable-Baselines3 imports TensorBoard if it is installed, and TensorBoard imports TensorFlow.
load_first("triton", before="tensorflow")

_get, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


# The catalog loads `rlcatalog_sb3.plugin` in every process; PyTorch and Stable-Baselines3 are
# imported at first use.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        refuse_import_of_algorithm(name)
    value = _get(name)
    globals()[name] = value
    enter_names(importing=True)
    return value


enter_names(importing=False)
