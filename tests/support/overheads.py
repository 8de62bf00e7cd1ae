"""What libraries spend under pytest and no test is about."""

from __future__ import annotations

import atexit
import functools
import gc
import inspect
import logging
import multiprocessing
import os
import sys
from importlib import import_module
from typing import Any

import pytest

#: Ray's connectors look at one frame above their own and have the source of all of them read for
#: it: 40 ms each.
_LOOKS_AT_FRAMES = "ray.rllib.connectors.connector_v2"
_stack = inspect.stack
#: What processes of environments import, each anew where the one that they are forked from has not.
_OF_WORKERS = ["cloudpickle", "gymnasium.vector", "msgspec", "pluggy", "pytest"]
#: Where PyTorch's exporter makes the same table of operations anew for each file: half a second.
_REGISTRY = "torch.onnx._internal.exporter._registration"


def _frames_without_source(context: int = 1) -> list[inspect.FrameInfo]:
    frame: Any = sys._getframe(1)
    if frame.f_globals.get("__name__") != _LOOKS_AT_FRAMES:
        return _stack(context)[1:]
    found = []
    while frame is not None:
        found.append(
            inspect.FrameInfo(
                frame, frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None
            )
        )
        frame = frame.f_back
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Let Ray's connectors look at frames alone, and let nobody hear of the steps of PyTorch's
    traces.
    """
    if hasattr(config, "workerinput"):
        # Python frees a worker's modules and objects one by one, which takes up to ten seconds.
        # What was registered first is called last.
        atexit.register(os._exit, 0)
    gc.disable()  # while all is imported and collected, of which nothing goes
    inspect.stack = _frames_without_source
    multiprocessing.set_forkserver_preload(_OF_WORKERS)
    logging.getLogger("torch.__trace").propagate = False


def pytest_runtest_setup() -> None:
    """Let PyTorch's exporter keep its table, once it is imported."""
    if _REGISTRY in sys.modules:
        keep_table_of_operations()


def keep_table_of_operations() -> None:
    """Let PyTorch's exporter keep its table: for those who export much in one fixture."""
    registry = import_module(_REGISTRY).ONNXRegistry
    if not hasattr(registry.from_torchlib, "cache_info"):
        registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))


def pytest_unconfigure() -> None:
    """Give `inspect.stack` back."""
    inspect.stack = _stack


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported by now, all of PyTorch and TensorFlow
    among it: 1 s each.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
