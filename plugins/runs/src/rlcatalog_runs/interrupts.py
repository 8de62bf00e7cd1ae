"""Interrupts: Ctrl-C and SIGTERM stop a run after it has saved."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Exception raised when a signal asks the run to stop.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_status(self) -> int:
        """Exit status that shells expect from a process that was ended by a signal."""
        return 128 + self.number


class Interrupts:
    """Pending request to stop, which arrived while the run could not stop.

    Attributes:
        pending: The signal that asked the run to stop, or None.
    """

    def __init__(self) -> None:
        self.pending: int | None = None

    def check(self) -> None:
        """Raise an error if a stop was requested.

        Raises:
            Interrupted: A stop was requested.
        """
        if self.pending is not None:
            raise Interrupted(self.pending)


@contextmanager
def interruptible(*, later: bool = False) -> Iterator[Interrupts]:
    """Turn the first SIGINT or SIGTERM into `Interrupted`; ignore later signals while it is
    handled.

    Args:
        later: Store the signal, and raise the error only when the yielded object's `check` is
            called. Use this for code that cannot stop at an arbitrary point.
    """
    interrupts = Interrupts()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if interrupts.pending is not None:
            print("Still saving. The process ends when that is done.", file=sys.stderr)
            return
        interrupts.pending = number
        if not later:
            raise Interrupted(number)
        print("Stopping. The run is saved when the current computation is done.", file=sys.stderr)

    with signal_handler(interrupt, "SIGINT", "SIGTERM"):
        yield interrupts


@contextmanager
def signal_handler(handle: Callable[[int, FrameType | None], None], *names: str) -> Iterator[None]:
    """Install a signal handler, if the system supports this.

    Do nothing outside the main thread, where Python cannot handle signals.

    Args:
        handle: The handler.
        *names: Names of the signals, such as SIGHUP; names that the system lacks are ignored.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    handlers_before = {}
    try:
        if is_main_thread:
            for name in names:
                number = getattr(signal, name, None)  # Python has no SIGHUP on Windows
                if number is not None:
                    handlers_before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in handlers_before.items():
            # None is a handler that was not installed from Python, which cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
