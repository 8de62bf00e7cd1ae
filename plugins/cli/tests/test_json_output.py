"""What a command prints with `--json` is JSON and nothing else, whatever plugins print at the same
time or later.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
import time

import pytest
from command_line import rlcatalog

from rlcatalog_cli import app, main

#: A plugin that prints while it is loaded, from a thread that outlives the command, and when the
#: process ends.
NOISY = """
import atexit, os, threading, time

def say():
    print("noise", flush=True)
    os.write(1, b"noise\\n")

def talk():
    while threading.main_thread().is_alive():
        say()
        time.sleep(0.001)
    say()

say()
threading.Thread(target=talk).start()
atexit.register(say)

from rlcatalog import hookimpl

@hookimpl
def rlcatalog_models():
    return []
"""


def test_a_plugin_that_prints_from_a_thread_and_at_the_end_breaks_no_json(tmp_path):
    (tmp_path / "acme_noise.py").write_text(NOISY)
    info = tmp_path / "acme_noise-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-noise\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlcatalog.plugins]\nacme_noise = acme_noise\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from rlcatalog_cli import main; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "list", "--json"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    loaded = {plugin["name"]: plugin["status"] for plugin in json.loads(run.stdout)["plugins"]}
    assert loaded["acme_noise"] == "loaded"
    assert "noise" in run.stderr


@pytest.fixture
def noisy(monkeypatch):
    """Let a thread print all the time while a command runs."""
    make_app = app.make_app

    def with_noise(argv):
        command, over = make_app(argv), threading.Event()

        def talk():
            while not over.is_set():
                print("noise")
                time.sleep(0.001)

        def run(arguments):
            thread = threading.Thread(target=talk)
            thread.start()
            try:
                command(arguments)
            finally:
                over.set()
                thread.join()

        return run

    monkeypatch.setattr(app, "make_app", with_noise)


@pytest.mark.parametrize(
    "line",
    ["list", "explain CartPole-v1", "summary CartPole-v1", "check rlcatalog-deterministic", "runs"],
)
@pytest.mark.usefixtures("noisy")
def test_json_is_whole_while_another_thread_prints(line, tmp_path, monkeypatch):
    # The checks themselves take a while.
    monkeypatch.setattr("rlcatalog_testing.outcomes", lambda cases: [])
    (tmp_path / "runs/broken").mkdir(parents=True)
    (tmp_path / "runs/broken/run.json").write_text("{")
    run = rlcatalog(*line.split(), "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    json.loads(run.stdout)
    assert "noise" in run.stderr


def test_afterwards_standard_output_is_as_it_was():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        with pytest.raises(SystemExit):
            main(["list", "--json"])
        assert sys.stdout is out
    json.loads(out.getvalue())
