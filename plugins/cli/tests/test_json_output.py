"""Output of commands with `--json`: JSON and nothing else, whatever plugins print."""

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
PRINTING_PLUGIN = """
import atexit, os, threading, time

def make_noise():
    print("noise", flush=True)
    os.write(1, b"noise\\n")

def make_noise_until_the_end():
    while threading.main_thread().is_alive():
        make_noise()
        time.sleep(0.001)
    make_noise()

make_noise()
threading.Thread(target=make_noise_until_the_end).start()
atexit.register(make_noise)

from rlcatalog import hookimpl

@hookimpl
def rlcatalog_models():
    return []
"""


@pytest.fixture
def printing_plugin(tmp_path):
    """A folder with the installed plugin acme_noise."""
    (tmp_path / "acme_noise.py").write_text(PRINTING_PLUGIN)
    info = tmp_path / "acme_noise-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-noise\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlcatalog.plugins]\nacme_noise = acme_noise\n")
    return tmp_path


def test_output_is_json_although_a_plugin_prints(printing_plugin):
    folder = str(printing_plugin)
    program = f"import sys; sys.path.insert(0, {folder!r}); from rlcatalog_cli import main; main()"

    run = subprocess.run(
        [sys.executable, "-c", program, "list", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    statuses = {plugin["name"]: plugin["status"] for plugin in json.loads(run.stdout)["plugins"]}
    assert statuses["acme_noise"] == "loaded"
    assert "noise" in run.stderr


@pytest.fixture
def printing_thread(monkeypatch):
    """Let a thread print all the time while a command runs."""
    make_app = app.make_app

    def make_app_with_noise(argv):
        command = make_app(argv)
        is_over = threading.Event()

        def make_noise():
            while not is_over.is_set():
                print("noise")
                time.sleep(0.001)

        def run(arguments, **options):
            thread = threading.Thread(target=make_noise)
            thread.start()
            try:
                command(arguments, **options)
            finally:
                is_over.set()
                thread.join()

        return run

    monkeypatch.setattr(app, "make_app", make_app_with_noise)


@pytest.fixture
def folder_with_a_broken_run(tmp_path):
    (tmp_path / "runs/broken").mkdir(parents=True)
    (tmp_path / "runs/broken/run.json").write_text("{")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    ["list", "explain CartPole-v1", "summary CartPole-v1", "check rlcatalog-deterministic", "runs"],
)
@pytest.mark.usefixtures("printing_thread")
def test_json_is_whole_while_another_thread_prints(command, folder_with_a_broken_run, monkeypatch):
    # `check` would take a while; its output is the same without a case.
    monkeypatch.setattr("rlcatalog_testing.outcomes", lambda cases: [])

    run = rlcatalog(*command.split(), "--json", cwd=folder_with_a_broken_run)

    assert run.returncode == 0, run.stderr
    json.loads(run.stdout)
    assert "noise" in run.stderr


def test_standard_output_is_restored_after_a_command():
    stdout = io.StringIO()

    with contextlib.redirect_stdout(stdout):
        with pytest.raises(SystemExit):
            main(["list", "--json"])
        assert sys.stdout is stdout

    json.loads(stdout.getvalue())
