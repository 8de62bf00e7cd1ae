"""Lines of a model or distribution, named where an export fails on them."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import rlcatalog
import rlcatalog_policy

#: Folders whose lines are not the user's: of rlcatalog's packages, and Python's own without site-packages.
_OURS = tuple(
    f"{Path(str(file)).resolve().parent}{os.sep}" for file in (rlcatalog.__file__, rlcatalog_policy.__file__, __file__)
)
_PYTHON = f"{Path(traceback.__file__).parent}{os.sep}"


def line_of(frames: Iterable[Any], *engines: ModuleType) -> str | None:
    """Return the last of some frames that is a model's or distribution's, as text; None where there is none.

    Args:
        frames: What `traceback.extract_tb` returns, or others with `filename`, `lineno` and `name`.
        engines: Packages whose lines are not the user's.
    """
    foreign = (*_OURS, *(f"{Path(module.__file__ or '').parent}{os.sep}" for module in engines), "<")
    line = None
    for frame in frames:
        file, number = frame.filename, frame.lineno
        if not (file.startswith(_PYTHON) and "-packages" not in file) and not file.startswith(foreign):
            line = f"{file}:{number}, in {frame.name}: `{linecache.getline(file, number).strip()}`"
    return line
