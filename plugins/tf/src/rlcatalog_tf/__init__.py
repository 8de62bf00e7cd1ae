"""TensorFlow 2 support: base classes for models, building blocks, and the classes of installed
parts by name.

`from rlcatalog_tf import TFModelV2, FullyConnectedNetwork, Categorical, normc_initializer`

`from rlcatalog_tf import keras, tf` imports Keras and TensorFlow in an order that works together
with PyTorch (see `before_tensorflow`).
"""

from __future__ import annotations

import importlib
from typing import Any

import lazy_loader

from rlcatalog.frameworks import require_framework
from rlcatalog.plugins import part_class, part_classes
from rlcatalog_tf.load_order import before_tensorflow

before_tensorflow()

_own, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
_LIBRARIES = {"keras": "keras", "tf": "tensorflow"}


def __getattr__(name: str) -> Any:
    if name in _LIBRARIES:
        return importlib.import_module(_LIBRARIES[name])
    if name not in __all__:
        return part_class(__name__, name, "tf")
    require_framework("tf")
    return _own(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *part_classes("tf")})
