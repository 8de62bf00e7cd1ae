"""Processes of single runs that one command starts and stops.

This module contains what differs between systems. On Linux and macOS, each run has a separate
process group. Ctrl-C in the terminal therefore reaches only the command, which sends the signal on
to the runs. On Windows, a program cannot send Ctrl-C to single processes. There the runs stay in
the command's group, so that the console itself sends Ctrl-C to the command and to all runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

#: Whether the system is Windows.
WINDOWS = os.name == "nt"


def start_process(arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start `rlcatalog` in another process.

    Args:
        arguments: What follows `rlcatalog` on the command line.
        output: File for everything that the process prints.
    """
    command = [sys.executable]
    imports_from_current_folder = "" in sys.path or os.getcwd() in sys.path
    if not imports_from_current_folder:
        command.append("-P")  # do not import modules from the current folder
    command += ["-m", "rlcatalog_cli", *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        process_group=None if WINDOWS else 0,
    )


def ask_to_end(process: subprocess.Popen[bytes], number: int) -> None:
    """Let a process save its run and end, because the command was asked to end.

    Args:
        process: The process.
        number: SIGINT if the command received Ctrl-C, otherwise SIGTERM. On Windows, no other
            request than Ctrl-C can reach the process, so that SIGTERM ends it without saving.
    """
    if not WINDOWS:
        process.send_signal(number)
    elif number != signal.SIGINT:  # the console has sent Ctrl-C to the process
        process.terminate()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once; on Linux and macOS, also the processes of its environments."""
    with suppress(OSError):  # it has ended
        if WINDOWS:
            process.terminate()
        else:
            os.killpg(process.pid, signal.SIGKILL)
