"""Isolation of the command line from plugins' output and process exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TextIO

from rlcatalog.catalog import Catalog
from rlcatalog.internals import PluginRecord, disabled_reason, find_plugins, normalize, scan

#: Number of seconds that a plugin may take to load.
PATIENCE = 60
#: Line that a process prints after it has loaded a plugin.
_ALIVE = "rlcatalog: loaded"
#: The process's file descriptors.
_STDOUT = 1
_STDERR = 2

#: Stream for `print_answer` while standard output is redirected to standard error.
_ANSWERS: ContextVar[TextIO | None] = ContextVar("rlcatalog_answers", default=None)


@contextmanager
def redirect_stdout(*, for_good: bool = False) -> Iterator[None]:
    """Redirect the plugins' output to standard error; standard output is reserved for the result
    (see `print_answer`).

    Args:
        for_good: Keep the redirection after the command, because plugins' threads may print until
            the process ends.
    """
    is_redirected_already = _ANSWERS.get() is not None
    if is_redirected_already:
        yield
        return
    stdout = sys.stdout
    answers = stdout
    copy_of_stdout = None
    stdout.flush()
    sys.stdout = sys.stderr
    # The stream may be closed, or standard output is in memory.
    with suppress(AttributeError, OSError):
        copy_of_stdout = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)  # also redirects output of native code
        if stdout.fileno() == _STDOUT:
            answers = open(  # noqa: SIM115
                copy_of_stdout,
                "w",
                encoding=stdout.encoding,
                errors=stdout.errors,
                closefd=False,  # the descriptor is closed below
            )
    token = _ANSWERS.set(answers)
    try:
        yield
    finally:
        _ANSWERS.reset(token)
        if not for_good:
            sys.stdout = stdout
            if copy_of_stdout is not None:
                os.dup2(copy_of_stdout, _STDOUT)
                os.close(copy_of_stdout)


def print_json(data: Any) -> None:
    """Print a command's result as JSON; see `print_answer`."""
    print_answer(json.dumps(data, indent=2) + "\n")


def print_answer(text: str) -> None:
    """Print a result for other programs; with `--json`, nothing else is written to
    standard output.
    """
    print(text, end="", file=answer_stream(), flush=True)


def answer_stream() -> TextIO:
    """Return the stream for a command's result; see `redirect_stdout`."""
    return _ANSWERS.get() or sys.stdout


def catalog_of_survivors() -> Catalog:
    """Return a catalog in which plugins that crash the process are marked as failed."""
    deaths = {}
    installed = scan()
    for plugin in find_plugins(installed):
        if disabled_reason(plugin, os.environ) is None:
            death = _load_in_process(plugin)
            if death is not None:
                deaths[plugin.distribution] = death
    names_of_user = os.environ.get("RLCATALOG_DISABLE_PLUGINS", "").split(",")
    disabled = [name for name in names_of_user if name.strip()]
    disabled += list(deaths)
    # Plugins with these distributions are listed, but not loaded.
    environ = {**os.environ, "RLCATALOG_DISABLE_PLUGINS": ",".join(disabled)}
    catalog = Catalog(environ=environ)
    for record in catalog.plugins:
        if record.distribution in deaths:
            record.status = "failed"
            record.error = deaths[record.distribution]
    return catalog


def _load_in_process(plugin: PluginRecord) -> str | None:
    """Load a plugin in a separate process; return how the process ended, or None if the plugin
    loaded.
    """
    # The process runs the end of this file.
    command = [sys.executable, "-m", __name__, plugin.distribution, plugin.name]
    try:
        process = subprocess.run(
            command, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"it was not loaded within {PATIENCE} s"
    if _ALIVE.encode() in process.stdout.splitlines():
        return None
    how = describe_exit(process.returncode)
    way_out = f"disable it with RLCATALOG_DISABLE_PLUGINS={plugin.distribution}"
    return f"it ended the process that loaded it: {how}; {way_out}"


def describe_exit(code: int) -> str:
    """Describe a process's return code: its exit status, or the signal that ended it."""
    if code >= 0:
        return f"exit status {code}"
    with suppress(ValueError):  # a number without a name
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def _load(distribution: str, name: str) -> None:
    """Load one plugin, and print that the process is still alive."""
    import warnings

    warnings.simplefilter("ignore")  # errors are reported when the plugin is listed
    entry_points = []
    for plugin in find_plugins(scan()):
        if plugin.distribution == distribution and plugin.name == name:
            entry_points.append(plugin.entry_point)
    Catalog(entry_points, environ={})  # loads it
    os.write(_STDOUT, f"\n{_ALIVE}\n".encode())
    # Unlike sys.exit, this does not wait for the plugin's threads.
    os._exit(0)


if __name__ == "__main__":
    _load(normalize(sys.argv[1]), sys.argv[2])
