"""What each command shows in a terminal of 100 columns.

The expected screens are in `screens`; `make generate` writes them, and so does
`pytest tests/commands/test_screens.py --write-screens`.

Crosses: cli, policy, runs, ppo, sb3, rllib, export, testing, compat.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import terminal

from rlcatalog import __version__
from rlcatalog_cli import main

SCREENS = Path(__file__).with_name("screens")
#: The packages whose parts are on the screens.
NEEDED = ("torch", "tensorflow", "stable_baselines3", "sb3_contrib", "ray", "ale_py")

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(module) is None for module in NEEDED),
    reason="the screens show the parts of all packages",
)


def mask(screen, *patterns):
    """Return a screen in which the texts of these patterns, which differ from run to run, are
    replaced by a mark of the same length.

    In a pattern with a group, only the group is replaced.
    """
    for pattern in patterns:
        screen = re.sub(pattern, mask_match, screen, flags=re.MULTILINE)
    return screen.replace(__version__, "X.Y.Z")


def mask_match(match):
    begin, end = match.span(match.lastindex or 0)
    begin -= match.start()
    end -= match.start()
    return match[0][:begin] + "#".rjust(end - begin) + match[0][end:]


@pytest.fixture
def check_screen(request):
    """Return a function that compares a screen with the expected one, or writes that one."""

    def check(name, screen):
        for line in screen.splitlines():
            is_sentence = line.startswith("warning: ")  # which the terminal wraps
            assert is_sentence or len(line) <= 100, line
        path = SCREENS / f"{name}.txt"
        if request.config.getoption("--write-screens", default=False):
            path.write_text(screen, encoding="utf-8")
        assert screen == path.read_text(encoding="utf-8")

    return check


def test_screen_of_list(check_screen):
    screen = mask(terminal.show("list").screen())

    check_screen("list", screen)


def test_screen_of_explain(check_screen):
    screen = mask(terminal.show("explain", "CartPole-v1").screen())

    check_screen("explain", screen)


def test_screen_of_explain_with_a_wide_text(check_screen):
    line = ["explain", "Pendulum-v1", "--all", "--model", 'freeze_parts=["trunk"]']
    screen = mask(terminal.show(*line).screen())

    check_screen("explain_all", screen)


def test_screen_of_summary(check_screen):
    screen = mask(terminal.show("summary", "CartPole-v1").screen())

    check_screen("summary", screen)


@pytest.mark.parametrize("command", ["list", "explain CartPole-v1", "summary CartPole-v1"])
def test_command_has_colours_in_a_terminal_alone(command, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # other libraries then write colours into files, too

    in_terminal = terminal.show(*command.split())
    with pytest.raises(SystemExit):
        main(command.split())

    assert in_terminal.has_colours
    assert "\x1b" not in capsys.readouterr().out


# --- train, evaluate and tables of runs -----------------------------------------------------------


class TenSteps(gym.Env):
    """Episodes of ten steps that pay 1 each, so that returns do not depend on the weights."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num_steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        return np.zeros(3, np.float32), 1.0, self.num_steps == 10, False, {}


@pytest.fixture(autouse=True, scope="module")
def ten_steps():
    gym.register("TenSteps-v0", TenSteps)
    yield
    del gym.registry["TenSteps-v0"]


#: A figure that depends on the weights or on the machine: a loss, a divergence or a speed, at the
#: end of a row of figures with two exact ones, the return and the length.
LOSSES_AND_SPEED = [
    rf"^ +[\d,]+ +\S+ +\S+(?: +\S+){{{number}}}( +\S+)(?: +\S+)*$" for number in range(4)
]
SMALL = ["--model", "fcnet_hiddens=[8]"]
ENGINES = {
    "ppo": ["--set=num_envs=2", "--set=rollout_length=16", "--set=minibatch_size=32"],
    "sb3": ["--engine", "sb3", "--set=n_steps=32", "--set=batch_size=32"],
    "rllib": [
        *("--engine", "rllib", "--env-runners", "0", "--envs", "2"),
        *("--set", "train_batch_size_per_learner=32", "--set", "minibatch_size=32"),
    ],
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("local_ray")
def test_screen_of_train(engine, check_screen, tmp_path):
    options = [*ENGINES[engine], *SMALL, "--steps", "160", "--out", "runs/tour"]
    options += ["--eval-every", "96", "--eval-episodes", "2"]

    screen = terminal.show("train", "TenSteps-v0", *options, cwd=tmp_path).screen()

    masks = LOSSES_AND_SPEED
    if engine == "rllib":  # counts the steps of an episode in its own way
        masks = [*masks, r"^ +[\d,]+ +\S+( +\S+)"]
    check_screen(f"train_{engine}", mask(screen, *masks))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with two runs of PPO and one of A2C."""
    folder = tmp_path_factory.mktemp("runs")
    options = ["TenSteps-v0", *SMALL, "--set=num_envs=2"]
    options += ["--set=rollout_length=16"]
    ppo = [*options, "--steps", "64", "--set=minibatch_size=32"]
    a2c = [*options, "--steps", "32", "--algo", "A2C"]
    terminal.show("train", *ppo, "--out", "runs/ppo-0", cwd=folder)
    terminal.show("train", *ppo, "--out", "runs/ppo-1", "--seed", "1", cwd=folder)
    terminal.show("train", *a2c, "--out", "runs/a2c", cwd=folder)
    return folder


def test_screen_of_evaluate(check_screen, runs):
    screen = terminal.show("evaluate", "runs/ppo-0", "--episodes", "20", cwd=runs).screen()

    check_screen("evaluate", screen)


def test_screen_of_runs(check_screen, runs):
    screen = terminal.show("runs", cwd=runs).screen()

    check_screen("runs", re.sub(r"time [\d.]+ s", "time # s", screen))


def test_screen_of_compare(check_screen, runs):
    screen = terminal.show("compare", "runs", cwd=runs).screen()

    check_screen("compare", screen)


def test_screen_of_export(check_screen, runs):
    screen = terminal.show("export", "runs/ppo-0", cwd=runs).screen()

    check_screen("export", screen)


# --- commands for authors -------------------------------------------------------------------------


def test_screen_of_check(check_screen):
    screen = terminal.show("check", "rlcatalog-deterministic").screen()

    check_screen("check", mask(screen))


def test_screen_of_new(check_screen, tmp_path):
    screen = terminal.show("new", "model", "acme-net", cwd=tmp_path).screen()

    check_screen("new", screen)


OLD_MODEL = """\
from ray.rllib.models.torch.fcnet import FullyConnectedNetwork


class Net(FullyConnectedNetwork):
    pass
"""
OLD_ENVIRONMENT = """\
import gym
from gym.spaces import prng


class Walk(gym.Env):
    def reset(self):
        self.time = 0
        return self.time

    def step(self, action):
        self.time += 1
        return self.time, 0.0, self.time >= 20, {}
"""


def test_screen_of_port(check_screen, tmp_path):
    (tmp_path / "model.py").write_text(OLD_MODEL, encoding="utf-8")
    (tmp_path / "walk.py").write_text(OLD_ENVIRONMENT, encoding="utf-8")

    screen = terminal.show("port", ".", cwd=tmp_path).screen()

    check_screen("port", screen)


def test_screen_of_help(check_screen):
    check_screen("help", terminal.show("--help").screen())
