"""What libraries spend under pytest and no test is about."""

from __future__ import annotations

import gc
import inspect
import sys
from typing import Any

import pytest

#: Ray's connectors look at one frame above their own and have the source of all of them read for it: 40 ms each.
_LOOKS_AT_FRAMES = "ray.rllib.connectors.connector_v2"
_stack = inspect.stack


def _frames_without_source(context: int = 1) -> list[inspect.FrameInfo]:
    frame: Any = sys._getframe(1)
    if frame.f_globals.get("__name__") != _LOOKS_AT_FRAMES:
        return _stack(context)[1:]
    found = []
    while frame is not None:
        found.append(
            inspect.FrameInfo(frame, frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None)
        )
        frame = frame.f_back
    return found


def pytest_configure() -> None:
    """Let Ray's connectors look at frames alone."""
    inspect.stack = _frames_without_source


def pytest_unconfigure() -> None:
    """Give `inspect.stack` back."""
    inspect.stack = _stack


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported by now, all of PyTorch and TensorFlow among it: 1 s each."""
    gc.collect()
    gc.freeze()
