"""Export errors that name the line of a model or distribution instead of framework internals."""

from __future__ import annotations

import linecache
import os
import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import rlcatalog
import rlcatalog_policy
from rlcatalog.errors import NotServedError, reason

#: Folders without user code: rlcatalog's packages, and Python's standard library without
#: site-packages.
_OURS = tuple(
    f"{Path(str(file)).resolve().parent}{os.sep}"
    for file in (rlcatalog.__file__, rlcatalog_policy.__file__, __file__)
)
_PYTHON = f"{Path(traceback.__file__).parent}{os.sep}"
#: Colours of a terminal, which `reason` writes with a backslash.
_COLOURS = re.compile(r"(?:\x1b|\\x1b)\[[0-9;]*m")
#: Text that begins the advice after PyTorch's message.
_ADVICE = re.compile(
    r"\s+(?:For more information|Next steps|To fix the error|The error above|\(Size-like"
    r" symbols).*",
    re.DOTALL,
)
_LONGEST = 400


class _Frame(Protocol):
    """A frame of a traceback: `traceback.FrameSummary`, or PyTorch's class."""

    filename: str
    lineno: Any
    name: str


def line_of(frames: Iterable[_Frame], *engines: ModuleType) -> str | None:
    """Describe the last frame inside a model or distribution; None if there is none.

    Args:
        frames: The result of `traceback.extract_tb`, or other objects with `filename`, `lineno` and
            `name`.
        engines: Packages without user code.
    """
    engine_folders = [f"{Path(module.__file__ or '').parent}{os.sep}" for module in engines]
    without_user_code = (*_OURS, *engine_folders, "<")  # "<string>" is generated code
    line = None
    for frame in frames:
        file = frame.filename
        # Installed packages are in a folder `site-packages` below Python's own modules.
        is_standard_library = file.startswith(_PYTHON) and "-packages" not in file
        if is_standard_library or file.startswith(without_user_code):
            continue
        code = linecache.getline(file, frame.lineno).strip()
        line = f"{file}:{frame.lineno}, in {frame.name}: `{code}`"
    return line


def explain_stop(
    error: BaseException, what: str, *engines: ModuleType, suspects: Sequence[str] = ()
) -> NotServedError:
    """Return the error for an operation that PyTorch could not export.

    Args:
        error: PyTorch's error.
        what: The attempted operation, for the message.
        engines: Packages that contain no user code; if there are none, the message names no line.
        suspects: Lines that may have fixed the batch size, which must stay variable.
    """
    message = _ADVICE.sub("", _COLOURS.sub("", reason(error)))
    line = None
    if engines:
        line = line_of(traceback.extract_tb(error.__traceback__), *engines)
    # PyTorch writes "specialized" or "Specialized" if a size that varies became a constant.
    if suspects and "pecialized" in str(error):
        return NotServedError(
            f"export: {suspects[0]} turns the batch size into a constant, but an exported file"
            " must support any batch size. Write x.shape[0] instead of len(x)."
        )
    short = message
    if len(message) > _LONGEST:
        short = f"{message[:_LONGEST]} …"
    if line is not None:
        if "data-dependent" in message or "GuardOnDataDependent" in message:
            short = "tensor values select the code path; choose values with torch.where() instead"
        return NotServedError(f"export: {line} {what}: {short}.")
    return NotServedError(f"export: this policy {what}: {short.rstrip('.')}.")


def explain_missing_form(error: BaseException) -> NotServedError:
    """Return the error for a policy with an operation that ONNX lacks.

    Args:
        error: The converter's error. The error that caused it names the operation.
    """
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    message = _ADVICE.sub("", _COLOURS.sub("", reason(cause)))
    return NotServedError(
        f"export: this policy has no ONNX form: {message[:_LONGEST].rstrip('.')}. Use other"
        " operations in the model and in the distribution, or export a .pt2 file."
    )
