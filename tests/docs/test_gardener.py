"""The gardener of the home page: its environment, and the programs that train it."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import warm
from gymnasium.utils.env_checker import check_env

import rlcatalog

ROOT = Path(__file__).resolve().parents[2]
GARDENER = ROOT / "examples/gardener"
#: Program → numbers in it → smaller ones, with which it ends after a few seconds.
SMALL_BUDGETS = {
    "ppo.py": {'"total_steps": 200_000': '"rollout_length": 32, "total_steps": 256'},
    "sb3.py": {"for_sb3(Garden, config)": "for_sb3(Garden, config), n_steps=64", "200_000": "64"},
    "rllib.py": {
        "PPOConfig()": "PPOConfig().training(train_batch_size_per_learner=128, num_epochs=1)",
        "range(50)": "range(1)",
    },
    "own_loop.py": {"range(100)": "range(1)", "range(MAX_STEPS)": "range(16)"},
}


@pytest.fixture(scope="module")
def garden():
    """The module with the environment."""
    sys.path.insert(0, str(GARDENER))
    import garden

    yield garden
    sys.path.remove(str(GARDENER))


@pytest.fixture
def env(garden):
    env = garden.Garden("rgb_array")
    env.reset(seed=0)
    return env


def drive(x, y):
    return {"tool": 0, "drive": np.array([x, y], np.float32)}


class AllowedTools(gym.ActionWrapper):
    """Wrapper that drives instead of using a forbidden tool, because Gymnasium's checks ignore
    masks.
    """

    def action(self, action):
        tool = action["tool"] if self.unwrapped.mask()[action["tool"]] else 0
        return action | {"tool": tool}


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version:UserWarning")
def test_garden_is_an_environment_of_gymnasium(garden):
    check_env(AllowedTools(garden.Garden("rgb_array")), skip_render_check=True)
    assert isinstance(gym.make("Garden-v0").unwrapped, garden.Garden)


def test_plant_is_watered_grows_and_is_picked(env, garden):
    env.robot = env.plants[0].copy()
    assert env.observe()["action_mask"].tolist() == [1, 1, 0]
    _, reward, *_ = env.step({"tool": garden.WATER, "drive": np.zeros(2)})
    assert reward == 0.5

    masks = [env.step(drive(0, 0))[0]["action_mask"].tolist() for _ in range(60)]
    assert masks[0] == [1, 0, 0]
    assert masks[-1] == [1, 0, 1]
    obs, reward, *_ = env.step({"tool": garden.PICK, "drive": np.zeros(2)})
    assert (reward, env.fruit) == (1.0, 1)
    assert obs["action_mask"].tolist() == [1, 1, 0]  # it is dry again


def test_forbidden_tool_is_an_error(env, garden):
    env.robot = np.zeros(2)  # no plant grows in the corner
    with pytest.raises(ValueError, match="has nothing to do"):
        env.step({"tool": garden.WATER, "drive": np.zeros(2)})


def test_observation_leads_to_the_nearest_plant(env):
    for _ in range(200):
        obs = env.observe()
        env.step(drive(*(obs["offset"] * 10)))
    # Without watering, the robot ends up at a dry plant.
    assert np.linalg.norm(env.plants - env.robot, axis=1).min() < 0.05
    assert env.observe()["plant"] == 1


def test_picture_changes_with_the_garden(env):
    before = env.render()
    env.robot = env.robot + 0.5
    after = env.render()

    assert (before.shape, before.dtype) == ((500, 720, 3), np.uint8)
    assert (before != after).any()


def read_program(name):
    return (GARDENER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SMALL_BUDGETS)
def test_programs_have_the_same_config(name):
    assert re.findall(r"^config = (.*)$", read_program(name), re.M) == [
        '{"fcnet_hiddens": [64, 64]}'
    ]


@pytest.mark.parametrize(
    "name",
    [
        "ppo.py",
        "sb3.py",
        pytest.param("rllib.py", marks=pytest.mark.slow),  # starts Ray
        "own_loop.py",
    ],
)
def test_program_trains_a_gardener(name, garden, tmp_path):
    program = read_program(name)
    for number, smaller in SMALL_BUDGETS[name].items():
        assert number in program
        program = program.replace(number, smaller)
    shutil.copy(GARDENER / "garden.py", tmp_path)
    script = tmp_path / name
    script.write_text(program, encoding="utf-8")

    run = warm.run([str(script)], tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    policy = rlcatalog.load(tmp_path / "gardener")
    env = garden.Garden()
    obs, _ = env.reset(seed=0)
    done = False
    while not done:  # the environment refuses a forbidden tool
        step = policy.act([obs])
        action = {name: part[0] for name, part in step.action.items()}
        obs, _, _, done, _ = env.step(action)
