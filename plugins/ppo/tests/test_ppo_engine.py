"""The engine `ppo` of `rlcatalog train`: configs, threads, callbacks and errors of its runs."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlcatalog.errors import ConfigError, NonFiniteError
from rlcatalog_ppo import engine as engine_module
from rlcatalog_ppo.callbacks import Checkpoints, Evaluation, Log, StopAt
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.engine import PPOEngine, PPOOptions
from rlcatalog_runs import Interrupted, Interrupts, RunPlan


class FakePPO:
    """Takes the place of PPO; records its arguments and calls.

    Args:
        env: The environment.
        config: The algorithm's config.
        record: Folder for recorded rollouts, or None.

    Attributes:
        checkpoint: The checkpoint that it was restored from, or None.
        callbacks: The callbacks that were added.
        calls: Calls of methods that train or stop.
        error: An error that training raises, or None.
    """

    config_class = PPOConfig

    def __init__(self, env, config, *, record):
        self.env = env
        self.config = config
        self.record = record
        self.checkpoint = None
        self.callbacks = []
        self.calls = []
        self.error = None
        self.steps = 0
        self.stopping = None
        self.policy = None  # which the session shows

    @classmethod
    def restore(cls, checkpoint, env, *, config, record):
        algorithm = cls(env, config, record=record)
        algorithm.checkpoint = checkpoint
        return algorithm

    def add_callbacks(self, callbacks):
        self.callbacks.extend(callbacks)

    def _learn(self, total_steps):
        if self.error is not None:
            raise self.error
        self.calls.append(f"learn {total_steps} steps")
        self.steps = total_steps
        self.stopping = "the target was reached"

    def stop(self):
        self.calls.append("stop")


@pytest.fixture(autouse=True)
def _fake_ppo(monkeypatch):
    """Let the engine create a `FakePPO`."""
    monkeypatch.setitem(engine_module._ALGORITHMS, "PPO", FakePPO)


@pytest.fixture(autouse=True)
def thread_settings(monkeypatch):
    """All (framework, number of threads) that the engine sets."""
    settings = []
    monkeypatch.setattr(
        engine_module, "set_threads", lambda framework, count: settings.append((framework, count))
    )
    return settings


def make_plan(
    settings=None,
    *,
    env="Env-v0",
    model=None,
    seed=0,
    typed=(),
    checkpoint=None,
    config=None,
    **options,
):
    """Return a plan for a run of PPO.

    Args:
        settings: The user's keys of the algorithm's config.
        env: The environment's id.
        model: The user's keys of the model config.
        seed: The run's seed.
        typed: Names of the options that the user typed.
        checkpoint: The checkpoint to resume from, or None.
        config: The `config.json` of a resumed run, or None.
        **options: Values of the engine's options, whether or not they were typed.
    """
    return RunPlan(
        env,
        PPOOptions(engine="ppo", **options),
        algorithm="PPO",
        seed=seed,
        model=model or {},
        settings=settings or {},
        typed=frozenset(typed),
        checkpoint=checkpoint,
        config=config or {},
    )


def make_session(plan, folder):
    """Return all that the engine reads of a run's session, which prints the rows reported to it."""
    return SimpleNamespace(
        options=plan.options,
        folder=folder,
        begin=lambda policy: None,
        advance=print,
        report=print,
        stopping=None,
        interrupts=Interrupts(),
    )


# --- new runs -------------------------------------------------------------------------------------


def test_new_run_has_steps_model_and_seed_of_plan():
    model = {"fcnet_hiddens": [3]}
    plan = make_plan({"lr": 0.1}, env="Env-v0", steps=500, model=model, seed=7)

    algorithm = PPOEngine(plan).algorithm

    assert algorithm.env == "Env-v0"
    assert algorithm.config == {
        "total_steps": 500,
        "lr": 0.1,
        "model": {"fcnet_hiddens": [3]},
        "seed": 7,
    }


def test_total_steps_may_differ_from_steps_of_run():
    algorithm = PPOEngine(make_plan({"total_steps": 9}, steps=500)).algorithm

    assert algorithm.config["total_steps"] == 9


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("envs", 3, "num_envs"),
        ("frozen", "never", "frozen"),
        ("framework", "tf", "framework"),
    ],
)
def test_typed_option_sets_key_of_config(option, value, key):
    algorithm = PPOEngine(make_plan(typed=[option], **{option: value})).algorithm

    assert algorithm.config[key] == value


def test_option_that_was_not_typed_sets_no_key():
    algorithm = PPOEngine(make_plan(typed=["envs"], envs=3, device="cuda")).algorithm

    assert algorithm.config["num_envs"] == 3
    assert "device" not in algorithm.config


def test_typed_folder_records_experience():
    algorithm = PPOEngine(make_plan(typed=["record"], record="folder")).algorithm

    assert algorithm.record == Path("folder")


def test_folder_that_was_not_typed_records_nothing():
    # A resumed run reads options that were not typed from its folder.
    algorithm = PPOEngine(make_plan(typed=[], record="folder")).algorithm

    assert algorithm.record is None


@pytest.mark.parametrize("framework", [None, "tf"])
def test_new_run_sets_threads_of_framework(framework, thread_settings):
    PPOEngine(make_plan(framework=framework, threads=2))

    assert thread_settings == [(framework, 2)]


def test_new_run_has_one_thread_by_default(thread_settings):
    PPOEngine(make_plan(framework="tf"))

    assert thread_settings == [("tf", 1)]


def test_key_set_by_setting_and_option_is_an_error():
    settings = {"num_envs": 3, "lr": 1}
    plan = make_plan(settings, typed=["envs", "device"], envs=4, device="cpu")

    with pytest.raises(ConfigError, match="'num_envs' is also set by an option") as caught:
        PPOEngine(plan)

    assert str(caught.value).startswith("--set: ")


def test_check_accepts_valid_settings():
    PPOEngine.check(make_plan({"lr": 0.1}))


def test_check_rejects_invalid_settings():
    with pytest.raises(ConfigError, match="lr"):
        PPOEngine.check(make_plan({"lr": "fast"}))


# --- resumed runs ---------------------------------------------------------------------------------


def resume_run(settings=None, *, saved_total_steps=None, saved_steps=100, **options):
    """Resume a run for up to 400 steps and return its algorithm.

    Args:
        settings: The user's keys of the algorithm's config.
        saved_total_steps: The key `total_steps` of the saved config.
        saved_steps: The number of steps for which the run was started.
        **options: Options that the user typed.
    """
    config = {
        "env": "Saved-v0",
        "steps": saved_steps,
        "algorithm": {"total_steps": saved_total_steps, "env_config": {"size": 1}},
    }
    plan = make_plan(
        settings,
        typed=options,
        checkpoint=Path("run/checkpoint"),
        config=config,
        steps=400,
        **options,
    )
    return PPOEngine(plan).algorithm


@pytest.fixture(autouse=True)
def manifest_paths(monkeypatch):
    """All paths whose manifest the engine reads; each manifest is of a TensorFlow policy."""
    paths = []

    def read_manifest(path):
        paths.append(path)
        return SimpleNamespace(framework="tf")

    monkeypatch.setattr(engine_module, "read_manifest", read_manifest)
    return paths


def test_resumed_run_restores_checkpoint_in_saved_environment():
    algorithm = resume_run()

    assert algorithm.checkpoint == Path("run/checkpoint")
    assert algorithm.env == "Saved-v0"
    assert algorithm.config == {"env_config": {"size": 1}}
    assert algorithm.record is None


def test_resumed_run_takes_typed_options():
    algorithm = resume_run(device="cpu")

    assert algorithm.config == {"env_config": {"size": 1}, "device": "cpu"}


def test_env_config_of_resumed_run_may_be_changed():
    algorithm = resume_run({"env_config": {"size": 2}})

    assert algorithm.config == {"env_config": {"size": 2}}


def test_schedule_of_whole_run_grows_with_resumed_run():
    # The schedule spanned the 100 steps of the run, which now has 400.
    algorithm = resume_run(saved_total_steps=100, saved_steps=100)

    assert algorithm.config["total_steps"] == 400


@pytest.mark.parametrize("saved_total_steps", [300, None])
def test_other_schedule_stays_in_resumed_run(saved_total_steps):
    algorithm = resume_run(saved_total_steps=saved_total_steps, saved_steps=100)

    assert "total_steps" not in algorithm.config


@pytest.mark.parametrize("saved_total_steps", [100, 300])
def test_total_steps_of_resumed_run_may_be_set(saved_total_steps):
    algorithm = resume_run({"total_steps": 5}, saved_total_steps=saved_total_steps, saved_steps=100)

    assert algorithm.config["total_steps"] == 5


def test_resumed_run_sets_threads_of_saved_framework(thread_settings, manifest_paths):
    resume_run(threads=3)

    assert manifest_paths == [Path("run/checkpoint/policy")]
    assert thread_settings == [("tf", 3)]  # the framework in that manifest


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "callback_classes"),
    [
        ({}, [Log, Checkpoints]),
        ({"eval_every": 20}, [Evaluation, Log, Checkpoints]),
        ({"stop_at": 5.0}, [StopAt, Log, Checkpoints]),
        ({"eval_every": 1, "stop_at": 0.0}, [Evaluation, StopAt, Log, Checkpoints]),
    ],
    ids=["plain", "evaluated", "target", "evaluated-target"],
)
def test_callbacks_log_results_before_checkpoints(options, callback_classes, tmp_path):
    plan = make_plan(**options)
    engine = PPOEngine(plan)

    engine.learn(make_session(plan, tmp_path))

    movement, *callbacks = engine.algorithm.callbacks
    assert [type(callback) for callback in callbacks] == callback_classes
    assert isinstance(movement, engine_module._Movement)  # shows the steps within an iteration


def learn(folder, **options):
    """Train a run and return its callbacks by class."""
    plan = make_plan(**options)
    engine = PPOEngine(plan)
    engine.learn(make_session(plan, folder))
    return {type(callback): callback for callback in engine.algorithm.callbacks}


def test_steps_within_an_iteration_are_shown(tmp_path, capsys):
    movement = learn(tmp_path)[engine_module._Movement]
    algo = SimpleNamespace(steps=100, config=SimpleNamespace(num_envs=8))

    movement.on_start(algo)
    movement.on_step(algo, {})
    movement.on_step(algo, {})
    algo.steps = 115  # some of the steps only reset an environment
    movement.on_update(algo, {})
    movement.on_step(algo, {})

    assert capsys.readouterr().out.split() == ["108", "116", "123"]


def test_checkpoints_follow_options(tmp_path):
    checkpoints = learn(tmp_path, checkpoint_every=30, keep_checkpoints=4)[Checkpoints]

    assert checkpoints.folder == tmp_path
    assert checkpoints.every.steps == 30
    assert checkpoints.keep == 4


def test_log_reports_to_session(tmp_path, capsys):
    log = learn(tmp_path)[Log]

    log.write({"timesteps_total": 50})

    assert capsys.readouterr().out == "{'timesteps_total': 50}\n"


def test_log_raises_an_interrupt_that_is_still_pending(tmp_path, capsys):
    engine = PPOEngine(make_plan())
    session = make_session(engine.plan, tmp_path)
    engine.learn(session)
    [log] = [callback for callback in engine.algorithm.callbacks if isinstance(callback, Log)]
    session.interrupts.pending = signal.SIGINT

    with pytest.raises(Interrupted, match="SIGINT"):
        log.write({"timesteps_total": 50})

    assert capsys.readouterr().out == "{'timesteps_total': 50}\n"  # the row is logged before


@pytest.mark.parametrize("eval_every", [1, 20])
def test_evaluations_follow_options(eval_every, tmp_path):
    evaluation = learn(tmp_path, eval_every=eval_every)[Evaluation]

    assert evaluation.folder == tmp_path / "best"
    assert evaluation.every.steps == eval_every
    assert evaluation.episodes == 10  # the default


@pytest.mark.parametrize(("eval_every", "evaluated"), [(0, False), (1, True)])
def test_target_counts_evaluations_if_there_are_any(eval_every, evaluated, tmp_path):
    stop_at = learn(tmp_path, eval_every=eval_every, stop_at=0.0)[StopAt]

    assert stop_at.evaluated is evaluated


def test_engine_trains_for_steps_and_stops_algorithm(tmp_path):
    plan = make_plan(steps=70)
    engine = PPOEngine(plan)
    session = make_session(plan, tmp_path)

    engine.learn(session)
    engine.close()

    assert engine.algorithm.calls == ["learn 70 steps", "stop"]
    assert engine.steps == 70
    # `FakePPO` stops after 70 steps for this reason.
    assert session.stopping == "the target was reached"


def test_non_finite_error_names_last_good_policy(tmp_path):
    plan = make_plan()
    engine = PPOEngine(plan)
    engine.algorithm.error = NonFiniteError("the loss is NaN.")

    with pytest.raises(NonFiniteError) as caught:
        engine.learn(make_session(plan, tmp_path))

    assert str(caught.value) == (
        f"the loss is NaN. The last good policy is in {tmp_path / 'policy'}."
    )


def test_engine_declares_its_algorithms():
    assert PPOEngine.algorithms == ("PPO", "A2C", "PG")


def test_finished_run_ends_at_once():
    assert PPOEngine.ends_at_once is True
