"""TensorFlow's start-up notices, which the command line hides."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

#: The environment variable that sets TensorFlow's log level.
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
#: The level that hides everything but fatal errors. Other errors also raise Python exceptions.
FATAL_ONLY = "3"
#: The process's file descriptor for standard error.
_STDERR = 2
#: Severities of TensorFlow's log: level 1 hides the first, level 2 the first two, and so on.
_SEVERITIES = "IWE"
#: Beginning of a line in TensorFlow's log, in absl's format or in its own.
_LOG_LINE = re.compile(
    r"(?P<absl>[IWEF])\d{4} [\d:.]+ +\d+ \S+:\d+\] "
    r"|\d{4}-\d\d-\d\d [\d:.]+: (?P<own>[IWEF]) \S+:\d+\] "
)
#: Beginning of the line with which absl announces its first message.
_ANNOUNCEMENT = "WARNING: All log messages before absl::InitializeLog() is called"


@contextmanager
def hide_tensorflow_notices() -> Iterator[None]:
    """Hide TensorFlow's notices while a command runs, unless the user has set `LEVEL`.

    Recent versions of TensorFlow, such as 2.19 and 2.21, read `LEVEL` too late for the notices that
    they write while they are imported (https://github.com/tensorflow/tensorflow/issues/100442).
    These notices are removed from standard error. Processes that the command starts inherit
    `LEVEL`.
    """
    is_ours = LEVEL not in os.environ
    if is_ours:
        os.environ[LEVEL] = FATAL_ONLY
    finder = _TensorFlowFinder(_hidden_severities(os.environ[LEVEL]))
    # Just before Python's own finder, so that other packages' finders still come first. One of
    # them imports triton before TensorFlow.
    place = len(sys.meta_path)
    if PathFinder in sys.meta_path:
        place = sys.meta_path.index(PathFinder)
    sys.meta_path.insert(place, finder)
    try:
        yield
    finally:
        with suppress(ValueError):  # a plugin has replaced the finders
            sys.meta_path.remove(finder)
        if is_ours:
            os.environ.pop(LEVEL, None)


def _hidden_severities(level: str) -> str:
    """Return the severities that a log level hides; TensorFlow reads anything but a number as 0."""
    try:
        return _SEVERITIES[: max(int(level), 0)]
    except ValueError:
        return ""


class _TensorFlowFinder:
    """Finder that makes the loader of TensorFlow remove hidden notices from standard error.

    Args:
        severities: The severities that are hidden.
    """

    def __init__(self, severities: str) -> None:
        self._severities = severities

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of TensorFlow; None for any other module."""
        if fullname != "tensorflow":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with _without_notices(self._severities):
                execute(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextmanager
def _without_notices(severities: str) -> Iterator[None]:
    """Collect what is written to standard error, and write it again at the end without notices."""
    with tempfile.TemporaryFile() as collected:
        try:
            copy_of_stderr = os.dup(_STDERR)
        except OSError:  # standard error is closed
            yield
            return
        os.dup2(collected.fileno(), _STDERR)
        try:
            yield
        finally:
            with suppress(AttributeError, OSError, ValueError):  # no stream, or a closed one
                sys.stderr.flush()
            os.dup2(copy_of_stderr, _STDERR)
            os.close(copy_of_stderr)
            collected.seek(0)
            for line in collected:
                if not _is_notice(line.decode(errors="replace"), severities):
                    os.write(_STDERR, line)


def _is_notice(line: str, severities: str) -> bool:
    """Return whether a line belongs to TensorFlow's log and has a hidden severity."""
    if line.startswith(_ANNOUNCEMENT):
        return bool(severities)
    match = _LOG_LINE.match(line)
    if match is None:
        return False
    return (match["absl"] or match["own"]) in severities
