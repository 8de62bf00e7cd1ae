"""Processes of single runs: their start, their end and their groups, on each system."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from rlcatalog_runs.commands import child_processes
from rlcatalog_runs.commands.child_processes import ask_to_end, kill, start_process


class WindowsProcess:
    """A process as Python shows it on Windows, where no signal but SIGTERM is accepted.

    Python ends the process at once for SIGTERM, so that the process cannot save anything.
    """

    def __init__(self, *arguments, **options):
        if options.get("process_group") is not None:
            raise ValueError("process_group is only supported on POSIX platforms")
        self.pid = 123
        self.options = options
        self.is_alive = True

    def send_signal(self, number):
        if number != signal.SIGTERM:
            raise ValueError(f"Unsupported signal: {number}")
        self.terminate()

    def terminate(self):
        if not self.is_alive:
            raise PermissionError(13, "Access is denied")
        self.is_alive = False


@pytest.fixture(autouse=True)
def sigint():
    """Handle SIGINT: in the background of a shell, tests and the processes they start ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def windows(monkeypatch):
    """Processes, groups and signals are as on Windows."""
    monkeypatch.setattr(child_processes, "WINDOWS", True)
    monkeypatch.setattr(subprocess, "Popen", WindowsProcess)
    monkeypatch.delattr(os, "killpg")
    monkeypatch.delattr(signal, "SIGKILL")


def test_process_stays_in_the_group_on_windows(windows):
    process = start_process(["list"], output=subprocess.DEVNULL)

    # Windows sends Ctrl-C only to processes in the group that has the console.
    assert not process.options.get("creationflags")


def test_ask_to_end_leaves_ctrl_c_to_the_windows_console(windows):
    process = start_process(["list"], output=subprocess.DEVNULL)

    ask_to_end(process, signal.SIGINT)

    # The console has sent Ctrl-C to the process too, so it ends by itself.
    assert process.is_alive


def test_ask_to_end_ends_a_process_on_windows_otherwise(windows):
    process = start_process(["list"], output=subprocess.DEVNULL)

    ask_to_end(process, signal.SIGTERM)

    assert not process.is_alive


def test_kill_ends_a_process_once_on_windows(windows):
    process = start_process(["list"], output=subprocess.DEVNULL)

    kill(process)
    kill(process)  # it has ended: no error

    assert not process.is_alive


def test_process_has_its_own_group_elsewhere():
    with open(os.devnull, "wb") as output:
        process = start_process(["list"], output)
    try:
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    finally:
        kill(process)

    assert process.wait() == -signal.SIGKILL
    kill(process)  # it has ended: no error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ask_to_end_sends_the_signal_elsewhere(number):
    process = subprocess.Popen(["sleep", "60"])

    ask_to_end(process, number)

    assert process.wait() == -number
