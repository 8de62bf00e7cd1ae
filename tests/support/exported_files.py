"""Small exported policies in each format, and crafted ones made of them."""

from __future__ import annotations

import json

import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog_export.onnx import INTERFACE, write_sealed

OBS = spaces.Dict(d=spaces.Discrete(3), v=spaces.Box(-1, 1, (2,), np.float32))
ACTION = spaces.Box(-1, 2, (2,), np.float32)
CONFIG = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3}
TRIED = [
    {"d": 1, "v": np.array([0.25, -0.5], np.float32)},
    {"d": 2, "v": np.array([0.75, 0.125], np.float32)},
]


def exports(folder):
    """Export a policy in each format; name → path."""
    policies = {
        framework: rlcatalog.build(OBS, ACTION, CONFIG, framework) for framework in ("torch", "tf")
    }
    # ONNX from what is quicker.
    files = {"policy.onnx": "tf", "policy.pt2": "torch", "policy-savedmodel": "tf"}
    for name, framework in files.items():
        policies[framework].export(
            folder / name, format="savedmodel" if name.endswith("savedmodel") else None
        )
    return {name: folder / name for name in files}


def interface_of(model):
    """Return the interface in a model as plain data."""
    return json.loads(next(entry.value for entry in model.metadata_props if entry.key == INTERFACE))


def relabelled(model, path, interface=None):
    """Write a model with a checksum that is right, and with another interface where one is given,
    as text.
    """
    entries = [(entry.key, entry.value) for entry in model.metadata_props if entry.key == INTERFACE]
    del model.metadata_props[:]
    for key, value in entries:
        model.metadata_props.add(key=key, value=value if interface is None else interface)
    write_sealed(model.SerializeToString(), path)
    return path
