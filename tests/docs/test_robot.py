"""The robot of the tutorial: its depot, the commands of the page, and the run that it shows."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import robot_tutorial
import warm
import yaml
from gymnasium.utils.env_checker import check_env

import rlcatalog

ROOT = Path(__file__).resolve().parents[2]
ROBOT = ROOT / "examples/robot"
PAGE = (ROOT / "docs/tutorials/robot.md").read_text(encoding="utf-8")
#: Steps of a training: one iteration.
FEW_STEPS = "1600"


def import_file(name):
    """Import a file of the example under another name than its own, so that tests share nothing."""
    spec = importlib.util.spec_from_file_location(f"robot_tutorial_{name}", ROBOT / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the depot ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def depot():
    """The module with the environment."""
    sys.path.insert(0, str(ROBOT))
    import depot

    yield depot
    sys.path.remove(str(ROBOT))
    del sys.modules["depot"], gym.registry["Depot-v0"]


@pytest.fixture
def env(depot):
    env = depot.Depot("rgb_array")
    env.reset(seed=0)
    return env


class AllowedGripper(gym.ActionWrapper):
    """Wrapper that keeps the gripper as it is where an action is forbidden, because Gymnasium's
    checks ignore masks.
    """

    def action(self, action):
        gripper = action["gripper"] if self.unwrapped.mask()[action["gripper"]] else 0
        return action | {"gripper": gripper}


def use_gripper(env, gripper):
    return env.step({"gripper": gripper, "move": np.zeros(2, np.float32)})


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version:UserWarning")
def test_depot_is_an_environment_of_gymnasium(depot):
    check_env(AllowedGripper(depot.Depot("rgb_array")), skip_render_check=True)
    assert isinstance(gym.make("Depot-v0").unwrapped, depot.Depot)


@pytest.mark.parametrize(("colour", "reward"), [(0, 1.0), (1, -1.0)])
def test_box_pays_at_the_pad_of_its_colour(env, depot, colour, reward):
    env.colour = colour
    env.robot = env.box.copy()
    assert env.mask().tolist() == [1, 1, 0]
    assert use_gripper(env, depot.CLOSE)[1] == 0.5

    env.robot = depot.PADS[0]  # the red one
    assert env.mask().tolist() == [1, 0, 1]
    assert use_gripper(env, depot.OPEN)[1] == reward
    assert not env.holds


def test_forbidden_gripper_is_an_error(env, depot):
    env.robot = env.box + np.array([1.0, 0.0])
    with pytest.raises(ValueError, match="is forbidden by"):
        use_gripper(env, depot.CLOSE)


def test_camera_does_not_see_a_carried_box(env, depot):
    box_colour = depot.BOX_COLOURS[env.colour]
    env.robot = env.box + np.array([0.1, 0.1])
    assert (env.camera() == box_colour).all(-1).any()

    use_gripper(env, depot.CLOSE)
    assert not (env.camera() == box_colour).all(-1).any()


def test_lidar_measures_what_a_walk_along_the_beams_finds(env, depot):
    for _ in range(5):
        env.robot = env.free_place([*env.pillars], depot.PILLAR)
        for direction, distance in zip(depot.BEAMS, env.lidar(), strict=True):
            walked = 0.0
            place = env.robot
            while (
                np.abs(place).max() < depot.HALF
                and np.linalg.norm(env.pillars - place, axis=1).min() > depot.PILLAR
            ):
                walked += 0.02
                place = env.robot + walked * direction
            assert distance == pytest.approx(walked, abs=0.021)


def test_pillars_stop_the_robot(env, depot):
    env.robot = env.pillars[0] + np.array([0.4, 0.0])
    for _ in range(5):
        env.step({"gripper": depot.KEEP, "move": np.array([-1, 0], np.float32)})
    gap = np.linalg.norm(env.robot - env.pillars[0])
    assert gap == pytest.approx(depot.PILLAR + depot.ROBOT)


def test_picture_changes_with_the_depot(env):
    before = env.render()
    env.robot = env.robot + 0.3
    assert (before.shape, before.dtype) == ((400, 600, 3), np.uint8)
    assert (before != env.render()).any()


# --- the configs and the commands -----------------------------------------------------------------


def read_config(name):
    return yaml.safe_load((ROBOT / name).read_text(encoding="utf-8"))


def test_configs_differ_only_in_the_memory():
    with_memory = read_config("lstm.yaml")
    for key in ("use_lstm", "lstm_cell_size", "max_seq_len"):
        del with_memory["model"][key]
    assert with_memory == read_config("no_memory.yaml")


def commands_of_page():
    """Return the lines with `rlcatalog` that the page tells the reader to type."""
    text = re.sub(r" \\\n +", " ", PAGE)  # continued lines
    return re.findall(r"^\$ (rlcatalog .*)$", text, re.M)


def test_page_has_the_commands_of_the_tour():
    explain, *commands = commands_of_page()
    assert explain == "rlcatalog explain robot:Depot-v0 --config lstm.yaml"
    assert commands == import_file("tour").COMMANDS


def shorten(command):
    """Return a command with few steps; one seed in place of several, which start processes.

    No training is interrupted here, so the resumed one gets more steps.
    """
    command = command.replace(import_file("tour").STEPS, FEW_STEPS)
    command = command.replace("--resume runs/robot", "--resume runs/robot --steps 3200")
    return re.sub(r"--seeds (\d)\S* --out (\S+)", r"--seed \1 --out \2/seed-\1", command)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A copy of the example in which the page's commands have run."""
    folder = tmp_path_factory.mktemp("robot") / "robot"
    shutil.copytree(ROBOT, folder, ignore=shutil.ignore_patterns("runs"))
    for command in commands_of_page():
        arguments = shorten(command).split()[1:]
        run = warm.run(["-m", "rlcatalog_cli", *arguments], folder, {"OMP_NUM_THREADS": "1"})
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
    return folder


@pytest.mark.parametrize(
    "name", ["robot/policy", "comparison.png", "half.mp4", "robot.mp4", "policy.onnx"]
)
def test_commands_of_the_page_write_their_files(work, name):
    assert (work / "runs" / name).exists()


def test_exported_robot_needs_its_sensors_only(work):
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")
    actor = rlcatalog.Actor(work / "runs/policy.onnx")
    observations = [port.name for port in actor.interface.inputs if port.role == "observation"]
    assert observations == ["obs_camera", "obs_holds", "obs_lidar"]
    assert sorted(actor.action_space) == ["gripper", "move"]


# --- the recorded run -----------------------------------------------------------------------------


def test_page_shows_the_recorded_run():
    assert robot_tutorial.read_record()["checksums"] == robot_tutorial.checksums()
    assert robot_tutorial.fill_page(PAGE) == PAGE
    assert "return" in robot_tutorial.read_outputs()[import_file("tour").COMMANDS[4]]


def final_returns(*folders):
    """Return the return at the end of each recorded run in some folders."""
    curves = robot_tutorial.curves_of(robot_tutorial.read_record()["curves"], folders)
    return curves[:, -1, 1]


def test_recorded_robot_has_learned():
    with_memory = final_returns("runs/robot", "runs/lstm")
    without = final_returns("runs/no_memory")
    assert len(with_memory) == len(without) == 3
    assert with_memory.min() > 6  # a robot that moves at random gets less than 1
    assert with_memory.mean() > without.mean() + 1


def test_recorded_run_took_at_most_ten_minutes():
    assert robot_tutorial.read_record()["cpu_minutes"] <= 10


def test_server_has_at_most_forty_lines():
    lines = (ROBOT / "server.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40
