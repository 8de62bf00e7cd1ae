"""TensorFlow's notices: the command line hides them, a library import does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import warm

from rlcatalog_cli.notices import LEVEL

#: What TensorFlow 2.21, 2.19 and absl write while TensorFlow is imported.
ANNOUNCEMENT = "WARNING: All log messages before absl::InitializeLog() is called are written to"
ABSL_INFO = "I0000 00:00:1795899289.825957   25627 port.cc:153] oneDNN custom operations are on."
OWN_INFO = "2025-09-17 14:44:05.157831: I external/xla/cudart_stub.cc:32] Could not find cuda."
ABSL_WARNING = "W0000 00:00:1758131045.228000 3722035 computation_placer.cc:177] already registered"
ABSL_ERROR = "E0000 00:00:1758131045.203198 3722035 cuda_dnn.cc:8579] Unable to register factory"
#: A line that is no notice.
OTHER = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2."

IMPORT_IN_COMMAND = """
from rlcatalog_cli.notices import hide_tensorflow_notices

with hide_tensorflow_notices():
    import tensorflow
"""

BUILD_WITH_LIBRARY = """
import os, sys
import gymnasium, rlcatalog

rlcatalog.build(env=gymnasium.make("CartPole-v1"), framework="tf")
assert "tensorflow" in sys.modules
assert "TF_CPP_MIN_LOG_LEVEL" not in os.environ
assert not [finder for finder in sys.meta_path if "rlcatalog_cli" in type(finder).__module__]
"""


def run_python(*arguments, folder, level=None):
    """Run Python in a folder whose modules it can import, with a log level or without one."""
    # With its default value, the second variable causes one of the notices.
    unset = (LEVEL, "TF_ENABLE_ONEDNN_OPTS")
    environ = {key: value for key, value in os.environ.items() if key not in unset}
    if level is not None:
        environ[LEVEL] = level
    environ["PYTHONPATH"] = str(folder)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def fake_tensorflow(tmp_path):
    """A folder with a module `tensorflow` that writes every kind of line when it is imported."""
    lines = [ANNOUNCEMENT, ABSL_INFO, OWN_INFO, ABSL_WARNING, ABSL_ERROR, OTHER]
    text = "".join(f"{line}\n" for line in lines)
    code = f"import os\nos.write(2, {text.encode()!r})\n"
    (tmp_path / "tensorflow.py").write_text(code, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (None, [OTHER]),
        ("0", [ANNOUNCEMENT, ABSL_INFO, OWN_INFO, ABSL_WARNING, ABSL_ERROR, OTHER]),
        ("1", [ABSL_WARNING, ABSL_ERROR, OTHER]),
        ("2", [ABSL_ERROR, OTHER]),
        ("3", [OTHER]),
        ("none", [ANNOUNCEMENT, ABSL_INFO, OWN_INFO, ABSL_WARNING, ABSL_ERROR, OTHER]),
    ],
)
def test_notices_are_hidden_up_to_the_level(fake_tensorflow, level, shown):
    run = run_python("-c", IMPORT_IN_COMMAND, folder=fake_tensorflow, level=level)

    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines() == shown


def test_notices_do_not_hide_a_failed_import(fake_tensorflow):
    with (fake_tensorflow / "tensorflow.py").open("a", encoding="utf-8") as module:
        module.write("raise ImportError('no library')\n")

    run = run_python("-c", IMPORT_IN_COMMAND, folder=fake_tensorflow)

    assert run.returncode == 1
    assert run.stderr.startswith(OTHER)
    assert "ImportError: no library" in run.stderr


def test_notices_level_is_restored_and_inherited(tmp_path):
    code = f"""
import os, subprocess, sys
from rlcatalog_cli.notices import hide_tensorflow_notices

finders = list(sys.meta_path)
print_level = "import os; print(os.environ.get('{LEVEL}'))"
with hide_tensorflow_notices():
    subprocess.run([sys.executable, "-c", print_level])
subprocess.run([sys.executable, "-c", print_level])
assert sys.meta_path == finders
"""

    run = run_python("-c", code, folder=tmp_path)

    # LEVEL is TensorFlow's variable. 3 hides all notices, also in a process that is started then.
    level_inside, level_afterwards = run.stdout.split()
    assert level_inside == "3"
    assert level_afterwards == "None"


def test_notices_are_absent_from_a_training_command(tmp_path):
    pytest.importorskip("tensorflow")
    small = ["num_envs=2", "rollout_length=16", "minibatch_size=32", "eager_tracing=false"]
    options = [option for setting in small for option in ("--set", setting)]
    command = ["train", "CartPole-v1", "--framework", "tf", "--steps", "32", *options]

    run = run_python("-m", "rlcatalog_cli", *command, "--out", "run", folder=tmp_path)

    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


def test_notices_are_not_touched_by_a_library_import(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow")
    monkeypatch.delenv(LEVEL, raising=False)

    run = warm.run(["-c", BUILD_WITH_LIBRARY], tmp_path)

    assert run.returncode == 0, run.stderr
