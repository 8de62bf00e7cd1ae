"""What `train` shows of a run, without the training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rlcatalog_runs import RunOptions, RunPlan
from rlcatalog_runs.commands import train_screen
from rlcatalog_runs.commands.train_screen import TrainScreen


class Progress:
    """What a screen has shown."""

    def __init__(self):
        self.updates = []
        self.lines = []

    def update(self, done, mean_return):
        self.updates.append((done, mean_return))

    def print(self, line, style=""):
        self.lines.append(line)


@pytest.fixture
def progress():
    return Progress()


@pytest.fixture
def clock(monkeypatch):
    """The clock of the screen, which the test moves."""
    clock = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(train_screen.time, "perf_counter", lambda: clock.seconds)
    return clock


def make_screen(progress, *, steps=1000, done=0, columns=None, **algorithm):
    """Return the screen of a run of a made-up engine."""
    options = RunOptions(engine="acme", steps=steps)
    engine = SimpleNamespace(
        plan=RunPlan("CartPole-v1", options, "PPO", steps=done),
        columns=columns or {},
        describe=lambda: {"algorithm": {"name": "PPO", **algorithm}},
    )
    return TrainScreen(engine, progress)


def make_row(steps, **figures):
    return {"timesteps_total": steps, "episode_return_mean": None, **figures}


def test_bar_moves_within_an_iteration(progress, clock):
    screen = make_screen(progress)

    screen.advance(8)
    screen.advance(16)  # in the same moment
    clock.seconds += 0.2
    screen.advance(24)

    assert progress.updates == [(8, None), (24, None)]
    assert progress.lines == []


def test_bar_shows_the_last_mean_return(progress, clock):
    screen = make_screen(progress)

    screen.add_row(make_row(10, episode_return_mean=3.0))
    clock.seconds += 1
    screen.advance(12)

    assert progress.updates == [(10, 3.0), (12, 3.0)]


def test_speed_is_that_since_the_last_row(progress, clock):
    screen = make_screen(progress)

    clock.seconds += 1
    screen.add_row(make_row(100))
    clock.seconds += 2
    screen.add_row(make_row(500))

    *_, first_row, second_row = progress.lines
    assert first_row.split()[-1] == "100"
    assert second_row.split()[-1] == "200"  # 400 steps in 2 seconds


def test_resumed_run_shows_the_speed_of_its_own_steps(progress, clock):
    screen = make_screen(progress, done=600)

    clock.seconds += 1
    screen.add_row(make_row(650))  # 6 of 10 parts were done before
    screen.add_row(make_row(700))

    *_, header, row = progress.lines
    assert header.split()[0] == "steps"
    assert row.split()[0] == "700"
    assert row.split()[-1] == "100"


def test_row_has_the_columns_of_the_engine(progress, clock):
    columns = {"loss": "loss", "KL": "info/kl", "entropy": "info/entropy"}
    screen = make_screen(progress, columns=columns)

    clock.seconds += 1
    figures = {"loss": float("nan"), "info": {"kl": 0.012345}}
    screen.add_row(make_row(100, episode_len_mean=20.0, **figures))

    _empty, header, row = progress.lines
    assert header.split() == ["steps", "return", "length", "loss", "KL", "entropy", "steps/s"]
    # The return and the entropy are unknown, and the loss is no number.
    assert row.split()[:-1] == ["100", "-", "20.0", "-", "0.0123", "-"]
    assert len(header) == len(row) <= 100


def test_rows_fit_into_100_columns(progress, clock):
    columns = {"policy loss": "a", "value loss": "b", "KL": "c"}
    screen = make_screen(progress, steps=10**9, columns=columns)

    clock.seconds += 1
    row = make_row(10**9, a=-1.23456e-10, b=1.23456e10, c=1e-5, episode_len_mean=123456.0)
    screen.add_row(row)

    assert len(progress.lines[-1]) <= 100


@pytest.fixture
def policy():
    """A policy whose trunk does not learn, as far as the screen asks."""
    return SimpleNamespace(
        resolution=SimpleNamespace(
            model_parts=("fcnet", "lstm"),
            dists=SimpleNamespace(part=SimpleNamespace(name="categorical")),
        ),
        summary=lambda: SimpleNamespace(weights=12_345),
        framework="torch",
        frozen_parts=("trunk", "value"),
    )


def test_heading_names_net_device_frozen_parts_and_rates(progress, policy):
    screen = make_screen(progress, lr_parts={"head": 1e-5})

    screen.begin(policy, "cuda:0")

    assert progress.lines == [
        "net       lstm around fcnet, 12,345 weights, actions from categorical",
        "device    cuda:0, with torch",
        "frozen    trunk, value (do not learn)",
        "rates     head 1e-05 (learning rates of parts)",
    ]
