"""A headless browser that opens pages of a local server, and says what they came to show."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: Names under which Chromium is installed.
NAMES = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
#: Where `make browser` puts Chromium if none is installed.
FETCHED = Path(sys.prefix) / ".browser"
SECONDS = 100

#: Opens each page in a frame until it says that it has played or failed, presses its button where
#: asked to, and tells the server what it found.
PROBE = """<!doctype html><link rel="icon" href="data:,"><body><script type="module">
const found = [];
const ended = async (frame) => {
  for (;;) {
    const says = frame.contentDocument?.getElementById("says")?.textContent ?? "";
    if (says.startsWith("has") || says.startsWith("failed")) return says;
    await new Promise((resume) => setTimeout(resume, 10));
  }
};
for (const { query, press } of CASES) {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.src = "index.html?" + query;
  const texts = [];
  for (let i = 0; i <= press; i += 1) {
    if (i) frame.contentDocument.getElementById("how").click();
    const says = await ended(frame);
    texts.push([says, frame.contentDocument.getElementById("return").textContent]);
  }
  found.push({ texts, episodes: frame.contentWindow.episodes });
  frame.remove();
}
await fetch("found", { method: "POST", body: JSON.stringify(found) });
</script>"""


def browser() -> str | None:
    """Return where Chromium is; None where it is not installed."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(FETCHED)])
    for name in NAMES:
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    return None


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder, the probe, and takes what the probe found."""

    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path.partition("?")[0])
        if self.path != "/probe.html":
            super().do_GET()
            return
        body = self.server.probe.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, probe: str) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.probe, self.asked, self.found = probe, list[str](), queue.Queue[Any]()


def opened(
    folder: Path, queries: Sequence[tuple[str, int]], scratch: Path
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what pages showed, and which paths were asked for; no other machine can be reached.

    Args:
        folder: What is served; its `index.html` is the page.
        queries: For each time it is opened, its query and how often its button is pressed.
        scratch: An empty folder for the browser.

    Raises:
        AssertionError: The pages did not end in time.
    """
    cases = json.dumps([{"query": query, "press": press} for query, press in queries])
    server = _Server(folder, PROBE.replace("CASES", cases))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        browser() or "chromium",
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={scratch / 'profile'}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        f"http://127.0.0.1:{server.server_port}/probe.html",
    ]
    with (scratch / "says").open("w+") as says:
        process = subprocess.Popen(command, stdout=says, stderr=says, start_new_session=True)
        try:
            return server.found.get(timeout=SECONDS), set(server.asked)
        except queue.Empty:
            says.seek(0)
            raise AssertionError(
                f"the pages did not end in {SECONDS} s: {server.asked}\n{says.read()[-2000:]}"
            ) from None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            server.shutdown()
            server.server_close()
