"""Callbacks: their order in a run, evaluations, targets, logs and checkpoints."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from drift_env import Drift

from rlcatalog_ppo import PPO, callbacks
from rlcatalog_ppo.callbacks import Callback, Checkpoints, Evaluation, Log, StopAt


class FakeAlgorithm:
    """An algorithm that trains nothing and records the calls of callbacks.

    Args:
        returns: The returns of its evaluations, one list for each.
    """

    policy = "policy"

    def __init__(self, returns=()):
        self.returns = iter(returns)
        self.steps = 0
        self.calls = []
        self.evaluations = []
        self.saves = []
        self.restored_states = []
        self.stop_reasons = []

    def evaluate(self, episodes=10, **options):
        self.evaluations.append({"episodes": episodes, **options})
        return next(self.returns)

    def save(self, folder):
        self.calls.append("save")
        self.saves.append(folder)

    def state(self):
        return {"steps": self.steps}

    def set_back(self, state):
        self.calls.append("set_back")
        self.restored_states.append(state)

    def stop_training(self, reason):
        self.stop_reasons.append(reason)


# --- order ----------------------------------------------------------------------------------------


def test_callback_methods_are_called_in_order():
    calls = []

    class RecordCalls(Callback):
        def on_start(self, algo):
            calls.append("start")

        def on_step(self, algo, step):
            calls.append("step")
            assert step["reward"].shape == (3,)  # an entry for each environment

        def on_rollout(self, algo, rollout):
            calls.append("rollout")
            assert rollout.reward.shape == (10, 3)  # steps, environments

        def on_update(self, algo, result):
            calls.append("update")
            if algo.iterations == 2:
                algo.stop_training("that will do")

        def on_end(self, algo, error):
            calls.append(f"end {error}")

    config = {"num_envs": 3, "rollout_length": 10, "minibatch_size": 15, "framework": "torch"}
    algo = PPO(Drift, config, callbacks=[RecordCalls()])
    algo.learn(10_000)

    iteration = ["step"] * 10 + ["rollout", "update"]
    assert calls == ["start", *iteration, *iteration, "end None"]
    assert algo.stopping == "that will do"
    assert algo.steps == 2 * 10 * 3  # iterations * rollout_length * num_envs


# --- evaluations ----------------------------------------------------------------------------------


def test_evaluation_reports_likely_and_sampled_actions():
    returns_of_likely_actions = [1.0, 3.0]
    returns_of_sampled_actions = [0.0, 1.0]
    algo = FakeAlgorithm([returns_of_likely_actions, returns_of_sampled_actions])
    result = {"timesteps_total": 10}

    Evaluation(every=10).on_update(algo, result)

    assert result["evaluation"] == {
        "return_mean": 2.0,  # of likely actions: the mean of 1 and 3
        "return_std": 1.0,
        "sampled_return_mean": 0.5,
        "episodes": 2,
    }


def test_evaluation_plays_ten_episodes_by_default():
    algo = FakeAlgorithm(returns=[[1.0], [1.0]])

    Evaluation(every=10).on_update(algo, {"timesteps_total": 10})

    defaults = {"episodes": 10, "env": None, "seed": None}  # None: as the algorithm's
    assert algo.evaluations == [defaults, {**defaults, "explore": True}]


def test_evaluation_plays_as_its_arguments_say():
    algo = FakeAlgorithm(returns=[[1.0], [1.0]])

    evaluation = Evaluation(every=10, episodes=3, seed=4, env="Env-v0")
    evaluation.on_update(algo, {"timesteps_total": 10})

    assert algo.evaluations[0] == {"episodes": 3, "env": "Env-v0", "seed": 4}


def test_evaluation_saves_policy_when_it_improves(tmp_path):
    returns = []
    for mean_return in (-5.0, -5.0, -7.0, -1.0, -2.0):
        returns.append([mean_return])  # one episode of likely actions, whose return decides
        returns.append([0.0])  # one episode of sampled actions
    algo = FakeAlgorithm(returns)
    evaluation = Evaluation(every=10, episodes=1, folder=tmp_path / "best")

    saves_so_far = []
    for steps in (10, 20, 30, 40, 50):
        evaluation.on_update(algo, {"timesteps_total": steps})
        saves_so_far.append(len(algo.saves))

    assert saves_so_far == [1, 1, 1, 2, 2]  # the first one, and -1, which is more than -5
    assert set(algo.saves) == {tmp_path / "best"}


def test_evaluation_without_a_folder_saves_nothing():
    algo = FakeAlgorithm(returns=[[1.0], [1.0]])

    Evaluation(every=10).on_update(algo, {"timesteps_total": 10})

    assert algo.saves == []


def test_evaluation_waits_until_it_is_due():
    algo = FakeAlgorithm()
    result = {"timesteps_total": 9}

    Evaluation(every=10).on_update(algo, result)

    assert algo.evaluations == []
    assert result == {"timesteps_total": 9}


def test_evaluation_state_has_its_count_and_the_best_mean():
    algo = FakeAlgorithm(returns=[[-5.0], [-5.0], [-1.0], [-1.0], [-2.0], [-2.0]])
    evaluation = Evaluation(every=10, episodes=1)
    assert evaluation.get_state() == [0, None]

    for steps in (10, 20, 30):
        evaluation.on_update(algo, {"timesteps_total": steps})

    assert evaluation.get_state() == [3, -1.0]


@pytest.mark.parametrize("best_mean", [None, 1.5])
def test_evaluation_continues_from_its_state(best_mean):
    evaluation = Evaluation(every=10)

    evaluation.set_state([3, best_mean])

    assert evaluation.get_state() == [3, best_mean]
    evaluation.on_update(FakeAlgorithm(), {"timesteps_total": 39})  # the fourth is due at 40


def test_evaluation_checks_its_environment():
    checked = []
    env_maker = SimpleNamespace(for_evaluation=checked.append)

    Evaluation(every=10, env="Env-v0").check_env(env_maker)

    assert checked == ["Env-v0"]


# --- targets --------------------------------------------------------------------------------------


def test_target_of_evaluations_stops_the_run_when_reached():
    algo = FakeAlgorithm()

    StopAt(5.0, evaluated=True).on_update(algo, {"evaluation": {"return_mean": 5.0}})

    assert algo.stop_reasons == ["the mean return of an evaluation is 5, the target 5"]


@pytest.mark.parametrize(
    "evaluation",
    [{"evaluation": {"return_mean": 4.9}}, {}],
    ids=["lower mean", "no evaluation"],
)
def test_target_of_evaluations_ignores_training_episodes(evaluation):
    algo = FakeAlgorithm()
    training = {"episode_return_mean": 9.0, "episodes_total": 200}

    StopAt(5.0, evaluated=True).on_update(algo, {**training, **evaluation})

    assert algo.stop_reasons == []


@pytest.mark.parametrize(
    ("mean", "episodes", "mean_in_reason"), [(5.0, 100, "5"), (7.25, 101, "7.25")]
)
def test_target_of_training_stops_the_run_when_reached(mean, episodes, mean_in_reason):
    algo = FakeAlgorithm()
    result = {"episode_return_mean": mean, "episodes_total": episodes}

    StopAt(5.0, evaluated=False).on_update(algo, result)

    assert algo.stop_reasons == [
        f"the mean return of 100 episodes is {mean_in_reason}, the target 5"
    ]


@pytest.mark.parametrize(
    ("mean", "episodes"),
    [
        pytest.param(9.0, 99, id="fewer than 100 episodes"),
        pytest.param(4.9, 100, id="lower mean"),
        pytest.param(None, 0, id="no episode"),
    ],
)
def test_target_of_training_is_not_reached(mean, episodes):
    algo = FakeAlgorithm()
    result = {"episode_return_mean": mean, "episodes_total": episodes}

    StopAt(5.0, evaluated=False).on_update(algo, result)

    assert algo.stop_reasons == []


def test_target_of_training_ignores_evaluations():
    algo = FakeAlgorithm()
    training = {"episode_return_mean": 9.0, "episodes_total": 99}

    StopAt(5.0, evaluated=False).on_update(algo, {**training, "evaluation": {"return_mean": 9.0}})

    assert algo.stop_reasons == []


def test_run_stops_at_its_target_in_training():
    # Any policy reaches a mean return of 5 in CartPole. The mean is known after 100 episodes, which
    # take about 2,200 of the 4,000 steps of the first iteration.
    config = {"num_envs": 4, "rollout_length": 1000, "num_epochs": 1, "framework": "torch"}
    algo = PPO("CartPole-v1", config, callbacks=[StopAt(5, evaluated=False)])

    algo.learn(100_000)

    assert algo.steps == 4000
    assert "the mean return of 100 episodes" in algo.stopping


def test_run_stops_at_its_target_in_an_evaluation():
    config = {"num_envs": 3, "rollout_length": 10, "minibatch_size": 15, "framework": "torch"}
    any_return_reaches_it = -1e9
    callbacks = [Evaluation(every=30, episodes=1), StopAt(any_return_reaches_it, evaluated=True)]
    algo = PPO(Drift, config, callbacks=callbacks)

    algo.learn(10_000)

    assert algo.steps == 30  # the first iteration
    assert "of an evaluation" in algo.stopping


def test_log_passes_each_result_to_its_function():
    rows = []

    Log(rows.append).on_update(FakeAlgorithm(), {"a": 1})

    assert rows == [{"a": 1}]


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.fixture
def checkpoints_written(monkeypatch):
    """Record the states that would be written to checkpoints, by the number of steps."""
    states = {}

    def write(path, policy, state):
        assert policy == FakeAlgorithm.policy
        path.mkdir(parents=True)
        steps = int(path.name.removeprefix("step-"))
        states[steps] = state

    monkeypatch.setattr(callbacks.checkpoints, "write", write)
    return states


def update_at(checkpoints, algo, *steps):
    """Tell a callback of updates after these numbers of steps."""
    for algo.steps in steps:
        checkpoints.on_update(algo, {})


def steps_of_checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_checkpoints_are_written_first_and_regularly(checkpoints_written, tmp_path):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=20)

    checkpoints.on_start(algo)
    update_at(checkpoints, algo, 10, 20, 30, 40)

    assert list(checkpoints_written) == [0, 20, 40]
    assert algo.saves == [tmp_path / "policy"] * 3  # the policy beside each checkpoint


def test_checkpoint_is_written_at_the_end(checkpoints_written, tmp_path):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=20)
    checkpoints.on_start(algo)
    algo.steps = 10

    checkpoints.on_end(algo, None)

    assert checkpoints_written == {0: {"steps": 0}, 10: {"steps": 10}}


def test_checkpoint_of_the_same_steps_is_written_once(checkpoints_written, tmp_path):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=20)
    checkpoints.on_start(algo)

    # Writing it again would raise an error, because the folder exists.
    checkpoints.on_end(algo, None)

    assert list(checkpoints_written) == [0]
    assert algo.saves == [tmp_path / "policy"] * 2  # at the start and at the end


def test_last_two_checkpoints_are_kept(checkpoints_written, tmp_path):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=20)

    checkpoints.on_start(algo)
    update_at(checkpoints, algo, 20, 40)

    assert steps_of_checkpoints(tmp_path) == ["step-000000020", "step-000000040"]


def test_resumed_run_saves_at_start_and_beyond_multiples(checkpoints_written, tmp_path):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=20, keep=5)
    algo.steps = 45  # where the run resumes

    checkpoints.on_start(algo)
    update_at(checkpoints, algo, 55, 65)

    # 45 is where it resumes, and 65 is the first number beyond 60, a multiple of `every`.
    assert list(checkpoints_written) == [45, 65]
    assert steps_of_checkpoints(tmp_path) == ["step-000000045", "step-000000065"]


def test_last_copy_is_restored_and_written_after_an_error(checkpoints_written, tmp_path):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=0)  # only at the start and at the end
    checkpoints.on_start(algo)
    update_at(checkpoints, algo, 10)

    algo.steps = 17  # in the middle of an iteration
    checkpoints.on_end(algo, RuntimeError())

    assert algo.restored_states == [{"steps": 10}]
    assert list(checkpoints_written) == [0, 10]
    assert algo.calls[-2:] == ["set_back", "save"]  # the policy is restored before it is saved


@pytest.mark.parametrize("error", [None, RuntimeError()], ids=["end", "error"])
def test_run_that_never_started_writes_no_checkpoint(error, checkpoints_written, tmp_path):
    algo = FakeAlgorithm()

    Checkpoints(tmp_path, every=10).on_end(algo, error)

    assert algo.saves == []
    assert algo.restored_states == []
    assert checkpoints_written == {}


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by `seconds_per_reading`, so that copying a state takes time."""
    clock = SimpleNamespace(now=0.5, seconds_per_reading=0.0)

    def perf_counter():
        clock.now += clock.seconds_per_reading
        return clock.now

    monkeypatch.setattr(callbacks.time, "perf_counter", perf_counter)
    return clock


@pytest.mark.parametrize(("seconds_later", "steps_of_last_copy"), [(49.9, 1), (50.0, 2)])
def test_copies_take_at_most_two_percent_of_the_time(
    seconds_later, steps_of_last_copy, checkpoints_written, clock, tmp_path
):
    algo = FakeAlgorithm()
    checkpoints = Checkpoints(tmp_path, every=0)
    clock.seconds_per_reading = 1.0
    update_at(checkpoints, algo, 1)  # the first copy of the state takes one second

    clock.seconds_per_reading = 0.0
    clock.now += seconds_later
    update_at(checkpoints, algo, 2)  # copies again if one second is 2 % of the time since then

    checkpoints.on_end(algo, RuntimeError())  # restores the last copy
    assert algo.restored_states == [{"steps": steps_of_last_copy}]
