"""TensorFlow 2: base classes for models, building blocks, and the installed parts' classes by name.

`from rlcatalog.tf import TFModelV2, FullyConnectedNetwork, Categorical, normc_initializer`

`from rlcatalog.tf import keras, tf` gives Keras and TensorFlow themselves, imported in an order that is safe beside
PyTorch (see `rlcatalog.load_order`).
"""

from __future__ import annotations

import importlib
from typing import Any

from rlcatalog.exports import lookup, names
from rlcatalog.load_order import before_tensorflow
from rlcatalog.registry import require_framework

require_framework("tf")
before_tensorflow()

_LIBRARIES = {"keras": "keras", "tf": "tensorflow"}

_OWN = {
    "TFModelV2": "rlcatalog.tf.model",
    "RecurrentNetwork": "rlcatalog.tf.model",
    "Outputs": "rlcatalog.tf.nn",
    "add_time_dimension": "rlcatalog.tf.sequences",
    "sequence_mask": "rlcatalog.tf.sequences",
    "RecurrentTFModelV2": "rlcatalog.tf.model",
    "Dense": "rlcatalog.tf.nn",
    "DenseStack": "rlcatalog.tf.nn",
    "FreeLogStd": "rlcatalog.tf.nn",
    "activation": "rlcatalog.tf.nn",
    "initial_value": "rlcatalog.tf.nn",
    "normc_initializer": "rlcatalog.tf.nn",
}


def __getattr__(name: str) -> Any:
    if name in _LIBRARIES:
        return importlib.import_module(_LIBRARIES[name])
    return lookup(__name__, name, _OWN, "tf")


def __dir__() -> list[str]:
    return names(_OWN, "tf")
