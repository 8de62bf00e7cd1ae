"""A headless Chromium that tests drive through its DevTools protocol, over a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import browser

#: Longest wait for an answer or an event, in seconds.
SECONDS = 60
#: A file descriptor above the ones that the shell gives to Chromium, which are 3 and 4.
_HIGH = 10


class Page:
    """A page of a browser, which is opened at one address after the other.

    Attributes:
        errors: What has gone wrong since the page was opened: errors in the console, exceptions
            of scripts, and files that could not be loaded.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        read_answers, write_answers = _high_pipe()
        read_calls, write_calls = _high_pipe()
        # Chromium reads calls from 3 and writes answers to 4.
        redirected = f'exec "$@" 3<&{read_calls} 4>&{write_answers}'
        with log.open("w") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", redirected, "bash", *command, "--remote-debugging-pipe"],
                pass_fds=(read_calls, write_answers),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.close(read_calls)
        os.close(write_answers)
        self._calls = os.fdopen(write_calls, "wb", buffering=0)
        self._log = log
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        reader = threading.Thread(target=self._read_messages, args=(read_answers,), daemon=True)
        reader.start()
        self._number_of_calls = 0
        self._session: str | None = None
        self._is_loaded = False
        self.errors: list[str] = []

        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number_of_calls += 1
        number = self._number_of_calls
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._calls.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next_message(method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def show_as(self, *, width: int, scheme: str) -> None:
        """Set the width of the window in pixels, and the colours: `"light"` or `"dark"`."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Open an address, and wait until everything on the page is loaded."""
        self.errors = []
        self._is_loaded = False
        self.call("Page.navigate", url=url)
        while not self._is_loaded:
            self._next_message(url)

    def evaluate(self, script: str) -> Any:
        """Return the value of a script's last expression; a promise is waited for."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._calls.close()

    def _next_message(self, waiting_for: str) -> dict[str, Any]:
        """Return the next message from the browser; if it is an event, note what it says."""
        try:
            message = self._messages.get(timeout=SECONDS)
        except queue.Empty:
            end_of_log = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise AssertionError(
                f"the browser did not answer within {SECONDS} s: {waiting_for}\n{end_of_log}"
            ) from None
        params = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._is_loaded = True
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] == "error":
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return message

    def _read_messages(self, descriptor: int) -> None:
        """Put the browser's messages, each of which ends with a zero byte, into the queue."""
        rest = b""
        with os.fdopen(descriptor, "rb", buffering=0) as answers:
            while block := answers.read(65_536):
                *messages, rest = (rest + block).split(b"\0")
                for message in messages:
                    self._messages.put(json.loads(message))


def _high_pipe() -> tuple[int, int]:
    """Return the two ends of a pipe, with numbers that no redirection of the shell overwrites."""
    ends = os.pipe()
    high_ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _HIGH) for end in ends]
    for end in ends:
        os.close(end)
    return high_ends[0], high_ends[1]


@contextmanager
def open_page(scratch: Path) -> Iterator[Page]:
    """Start a browser that reaches no other machine, and end it afterwards.

    Args:
        scratch: An empty folder for the browser's files.
    """
    command = [
        browser.browser() or "chromium",
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={scratch / 'profile'}",
    ]
    if os.geteuid() == 0:
        command.append("--no-sandbox")
    page = Page(command, scratch / "log")
    try:
        yield page
    finally:
        page.close()
