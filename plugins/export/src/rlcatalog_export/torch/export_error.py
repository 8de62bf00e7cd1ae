"""What stopped an export: the line of a model or distribution, in place of what PyTorch says of itself."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence

import torch

import rlcatalog_torch
from rlcatalog.errors import NotServedError, reason
from rlcatalog_export.user_lines import line_of

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: Where what PyTorch says ends and its advice begins.
_ADVICE = re.compile(
    r"\s+(?:For more information|Next steps|To fix the error|The error above|\(Size-like symbols).*", re.DOTALL
)
_LONGEST = 400


def line_being_run() -> str | None:
    """Return the line of a model or distribution that is being run."""
    return line_of(traceback.extract_stack(), torch, rlcatalog_torch)


def explain_stop(error: BaseException, what: str, suspects: Sequence[str] = (), lined: bool = True) -> NotServedError:
    """Return the error for what PyTorch could not export.

    Args:
        error: What PyTorch raised.
        what: What was tried, for the message.
        suspects: Lines that may be why: the batch's size must stay unknown.
        lined: Whether the error came from where models and distributions ran.
    """
    message = _ADVICE.sub("", _COLOURS.sub("", reason(error)))
    line = line_of(traceback.extract_tb(error.__traceback__), torch, rlcatalog_torch) if lined else None
    if suspects and "pecialized" in str(error):
        return NotServedError(
            f"export: {suspects[0]} makes a number of the size of the batch, which a file must leave open: write"
            " x.shape[0] in place of len(x)."
        )
    short = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} …"
    if line is not None:
        if "data-dependent" in message or "GuardOnDataDependent" in message:
            short = "what a tensor holds decides which code runs; torch.where() chooses values instead"
        return NotServedError(f"export: {line} {what}: {short}.")
    return NotServedError(f"export: this policy {what}: {short}.")
