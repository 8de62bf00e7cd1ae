"""The robot tutorial in empty environments: its commands, and its server without a framework."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

import warm
from package_environments import FOLDERS, installed_by

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).resolve().parents[2]
#: FastAPI and uvicorn, which `make test` installs: requirements/server.txt.
SERVER_PACKAGES = ROOT / ".venv/server"


@pytest.fixture
def robot(tmp_path):
    """A copy of the example."""
    folder = tmp_path / "robot"
    shutil.copytree(ROOT / "examples/robot", folder, ignore=shutil.ignore_patterns("runs"))
    return folder


@pytest.mark.slow  # it starts fourteen processes with PyTorch
def test_tour_runs_in_an_empty_environment(environment, robot):
    ours = installed_by("rlcatalog[torch,export]") & FOLDERS.keys()
    tour = environment(*ours, without=("tensorflow", "keras")).run(
        "tour.py", "--steps", "3200", cwd=robot
    )
    assert tour.returncode == 0, tour.stdout + tour.stderr
    assert "To continue: rlcatalog train --resume runs/robot" in tour.stdout + tour.stderr
    assert (robot / "runs/policy.onnx").is_file()


# --- the server -----------------------------------------------------------------------------------

#: Exports an untrained robot, and writes what its sensors measure and what it does.
EXPORT = """
import json

import numpy as np
import robot
import yaml
from depot import Depot
from drive import SENSORS

import rlcatalog

config = yaml.safe_load(open("lstm.yaml"))["model"]
env = Depot()
policy = rlcatalog.build(env=env, config=config)
policy.export("policy.onnx")
obs, _ = env.reset(seed=1)
state = None
episode = []
for _ in range(12):
    step = policy.act([obs], state, explore=False)
    state = step.state
    action = {name: part[0] for name, part in step.action.items()}
    measured = {name: np.asarray(obs[name]).tolist() for name in SENSORS}
    episode.append([measured, {name: part.tolist() for name, part in action.items()}])
    obs, *_ = env.step(action)
json.dump(episode, open("episode.json", "w"))
"""
#: Starts uvicorn at a free port, where no framework can be imported.
SERVE = """
import importlib.util
import sys

for framework in ("torch", "tensorflow"):
    assert importlib.util.find_spec(framework) is None
sys.path += [sys.argv[1], "."]
import uvicorn

uvicorn.run("server:app", port=0)
"""
DRIVE = """
import sys

sys.path.append(".")
import drive

drive.main(sys.argv[1])
"""


def post(address, data=None):
    request = Request(address, json.dumps(data).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def address(actor_environment, robot):
    """The address of the server, which runs in the environment of `[actor]`."""
    if not SERVER_PACKAGES.exists():
        pytest.skip("FastAPI and uvicorn are not installed: run `make .venv/.server`")
    export = warm.run(["-c", EXPORT], robot)
    assert export.returncode == 0, export.stderr
    python = actor_environment.folder / "bin/python"
    server = subprocess.Popen(
        [python, "-I", "-B", "-c", SERVE, SERVER_PACKAGES],
        cwd=robot,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed = ""
    address = None
    for line in server.stderr:
        printed += line
        address = re.search(r"running on (http://\S+)", line)
        if address:
            break
    assert address, printed
    yield address[1]
    server.terminate()
    server.communicate()


@pytest.fixture
def actor_environment(environment):
    """An environment with what `[actor]` installs, and nothing else."""
    distributions = installed_by("rlcatalog[actor]")
    ours = distributions & FOLDERS.keys()
    return environment(*ours, only=distributions - ours)


def test_server_without_a_framework_acts_as_the_policy(address, actor_environment, robot):
    episode = json.loads((robot / "episode.json").read_text(encoding="utf-8"))
    moves = []
    for observation, action in episode:
        answer = post(f"{address}/robots/a/act", observation)
        assert answer["gripper"] == action["gripper"]
        assert answer["move"] == pytest.approx(action["move"], abs=1e-5)
        moves.append(answer["move"])

    # Another robot begins its own episode, and a new start forgets the old one.
    first, _ = episode[0]
    assert post(f"{address}/robots/b/act", first)["move"] == moves[0]
    assert post(f"{address}/robots/a/act", first)["move"] != moves[0]
    post(f"{address}/robots/a/start")
    assert post(f"{address}/robots/a/act", first)["move"] == moves[0]

    with pytest.raises(HTTPError) as refused:
        post(f"{address}/robots/a/act", first | {"lidar": [1.0]})
    assert refused.value.code == 422
    assert "obs['lidar']: expected Box(8,)" in refused.value.read().decode()

    drive = actor_environment.run("-c", DRIVE, address, cwd=robot)
    assert drive.returncode == 0, drive.stderr
    assert re.fullmatch(r"delivered: \d+\n", drive.stdout)
