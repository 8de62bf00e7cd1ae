"""Callbacks, each with an algorithm that only takes notes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rlcatalog_ppo import callbacks
from rlcatalog_ppo.callbacks import Checkpoints, Evaluation, Log, StopAt


class Noting:
    """An algorithm that notes what is asked of it.

    Args:
        returns: The returns of its evaluations, one after another.
    """

    def __init__(self, returns=()):
        self.returns, self.asked, self.steps, self.policy = iter(returns), [], 0, "policy"

    def evaluate(self, episodes=10, **options):
        self.asked.append((episodes, options))
        return next(self.returns)

    def save(self, folder):
        self.asked.append(("save", folder))

    def state(self):
        return {"steps": self.steps}

    def set_back(self, state):
        self.asked.append(("set back", state))

    def stop_training(self, reason):
        self.asked.append(("stop", reason))

    def saves(self):
        return [part for what, part in self.asked if what == "save"]


# --- evaluations and targets ----------------------------------------------------------------------


def test_an_evaluation_plays_likely_and_sampled_actions_from_one_seed():
    algo, result = Noting([[1.0, 3.0], [0.0, 1.0]]), {"timesteps_total": 10}
    Evaluation(10).on_update(algo, result)
    assert result["evaluation"] == {
        "return_mean": 2.0,
        "return_std": 1.0,
        "sampled_return_mean": 0.5,
        "episodes": 2,
    }
    same = {"env": None, "seed": None}  # of the algorithm
    assert algo.asked == [(10, same), (10, {**same, "explore": True})]
    own = Noting([[1.0]] * 2)
    Evaluation(10, 3, seed=4, env="Env-v0").on_update(own, {"timesteps_total": 10})
    assert own.asked[0] == (3, {"env": "Env-v0", "seed": 4})


def test_best_policy_alone_is_saved(tmp_path):
    means = [-5.0, -5.0, -7.0, -1.0, -2.0]
    algo = Noting([[mean] for mean in means for _ in range(2)])
    evaluation, saves = Evaluation(10, 1, tmp_path / "best"), []
    assert evaluation.get_state() == [0, None]
    for i in range(len(means)):
        evaluation.on_update(algo, {"timesteps_total": 10 * (i + 1)})
        saves.append(len(algo.saves()))
    assert saves == [1, 1, 1, 2, 2]
    assert set(algo.saves()) == {tmp_path / "best"}
    assert evaluation.get_state() == [5, -1.0]
    nowhere = Noting([[1.0]] * 2)
    Evaluation(10).on_update(nowhere, {"timesteps_total": 10})
    assert nowhere.saves() == []


def test_evaluation_waits_until_it_is_due():
    algo, result = Noting(), {"timesteps_total": 9}
    Evaluation(10).on_update(algo, result)
    assert (algo.asked, result) == ([], {"timesteps_total": 9})


@pytest.mark.parametrize("state", [[3, None], [3, 1.5]])
def test_evaluation_goes_on_from_its_state(state):
    evaluation = Evaluation(10)
    evaluation.set_state(state)
    assert evaluation.get_state() == state
    evaluation.on_update(Noting(), {"timesteps_total": 39})  # nothing is due


def test_evaluation_checks_its_environment_first():
    asked = []
    Evaluation(10, env="Env-v0").check_env(SimpleNamespace(beside=asked.append))
    assert asked == ["Env-v0"]


@pytest.mark.parametrize(
    ("evaluated", "result", "stops"),
    [
        (True, {"evaluation": {"return_mean": 5.0}}, "an evaluation is 5,"),
        (
            True,
            {"evaluation": {"return_mean": 4.9}, "episode_return_mean": 9.0, "episodes_total": 200},
            None,
        ),
        (True, {"episode_return_mean": 9.0, "episodes_total": 200}, None),
        (False, {"episode_return_mean": 5.0, "episodes_total": 100}, "100 episodes is 5,"),
        (False, {"episode_return_mean": 7.25, "episodes_total": 101}, "100 episodes is 7.25,"),
        (
            False,
            {"episode_return_mean": 9.0, "episodes_total": 99, "evaluation": {"return_mean": 9.0}},
            None,
        ),
        (False, {"episode_return_mean": 4.9, "episodes_total": 100}, None),
        (False, {"episode_return_mean": None, "episodes_total": 0}, None),
    ],
)
def test_target_counts_evaluations_or_a_hundred_episodes(evaluated, result, stops):
    algo = Noting()
    StopAt(5.0, evaluated).on_update(algo, result)
    assert algo.asked == (
        [] if stops is None else [("stop", f"the mean return of {stops} the target 5")]
    )


def test_log_passes_each_result_on():
    rows = []
    Log(rows.append).on_update(Noting(), {"a": 1})
    assert rows == [{"a": 1}]


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch):
    """Return the states that were written, by the number in the folder's name."""
    states = {}

    def write(path, policy, state):
        assert policy == "policy"
        path.mkdir(parents=True)
        states[path.name] = state

    monkeypatch.setattr(callbacks.checkpoints, "write", write)
    return states


@pytest.fixture
def clock(monkeypatch):
    """Return a clock: `clock.now` in seconds; each copy of a state takes
    `clock.copying` seconds.
    """
    made = SimpleNamespace(now=0.5, copying=0.0)

    def perf_counter():
        made.now += made.copying
        return made.now

    monkeypatch.setattr(callbacks.time, "perf_counter", perf_counter)
    return made


def name_of(steps):
    return f"step-{steps:09d}"


def test_checkpoints_are_written_first_regularly_and_last(written, tmp_path):
    algo, kept = Noting(), Checkpoints(tmp_path, 20)
    kept.on_start(algo)
    for algo.steps in (10, 20, 30, 40):
        kept.on_update(algo, {})
    assert list(written) == [name_of(n) for n in (0, 20, 40)]
    algo.steps = 50
    kept.on_end(algo, None)
    assert list(written) == [name_of(n) for n in (0, 20, 40, 50)]
    assert written[name_of(50)] == {"steps": 50}
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        name_of(40),
        name_of(50),
    ]
    assert algo.saves() == [tmp_path / "policy"] * 4
    kept.on_end(algo, None)  # the same state once more
    assert list(written)[-1] == name_of(50)
    assert algo.saves() == [tmp_path / "policy"] * 5


def test_resumed_run_writes_at_the_same_steps(written, tmp_path):
    algo, kept = Noting(), Checkpoints(tmp_path, 20, keep=5)
    algo.steps = 45
    kept.on_start(algo)
    for algo.steps in (55, 65):
        kept.on_update(algo, {})
    assert list(written) == [name_of(45), name_of(65)]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_error_brings_the_last_copy_back(written, tmp_path):
    algo, kept = Noting(), Checkpoints(tmp_path, 0)
    kept.on_start(algo)
    algo.steps = 10
    kept.on_update(algo, {})
    algo.steps = 17
    kept.on_end(algo, RuntimeError())
    assert algo.asked[-2:] == [("set back", {"steps": 10}), ("save", tmp_path / "policy")]
    assert list(written) == [name_of(0), name_of(10)]


@pytest.mark.parametrize("error", [None, RuntimeError()])
def test_run_that_never_began_leaves_nothing(error, written, tmp_path):
    algo = Noting()
    Checkpoints(tmp_path, 10).on_end(algo, error)
    assert (algo.asked, written) == ([], {})


def test_copies_take_two_percent_of_the_time(written, clock, tmp_path):
    algo, kept = Noting(), Checkpoints(tmp_path, 0)
    kept.on_update(algo, {})  # `train` without `learn`: the first iteration is copied
    algo.steps, clock.copying = 1, 1.0
    kept.on_update(algo, {})  # copying takes a second from now on
    begun, clock.copying = clock.now, 0.0
    for after, copied in ((49.9, 1), (50.0, 2)):
        algo.steps, clock.now = 2, begun + after
        kept.on_update(algo, {})
        kept.on_end(algo, RuntimeError())
        assert algo.asked[-2] == ("set back", {"steps": copied})
