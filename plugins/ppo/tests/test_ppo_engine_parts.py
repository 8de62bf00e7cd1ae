"""The engine, the command `evaluate` and the conformance check, with an algorithm that only takes
notes.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rlcatalog
import rlcatalog_ppo
from rlcatalog.errors import ConfigError, NonFiniteError, NotServedError, SavedPolicyError
from rlcatalog_ppo import checks, commands, engine, environments, video
from rlcatalog_ppo.callbacks import Checkpoints, Evaluation, Log, StopAt
from rlcatalog_ppo.config import PPOConfig, parse
from rlcatalog_ppo.engine import PPOEngine, PPOOptions
from rlcatalog_runs import RunPlan
from rlcatalog_testing import NotApplicable

# --- the engine -----------------------------------------------------------------------------------


class Built:
    """What the engine builds or restores, noted."""

    made = None
    config_class = PPOConfig

    def __init__(self, *arguments, **named):
        Built.made = ("new", arguments, named)

    @classmethod
    def restore(cls, *arguments, **named):
        algo = cls()
        Built.made = ("restored", arguments, named)
        return algo


@pytest.fixture
def threads(monkeypatch):
    """Return the calls of `set_threads`; the engine builds a `Built`."""
    calls = []
    monkeypatch.setattr(rlcatalog_ppo, "PPO", Built, raising=False)
    monkeypatch.setattr(engine, "set_threads", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(engine, "read_manifest", lambda path: SimpleNamespace(framework=path))
    return calls


def plan_of(settings=None, typed=(), checkpoint=None, config=None, **options):
    return RunPlan(
        "Env-v0",
        PPOOptions(engine="ppo", **options),
        "PPO",
        7,
        {"a": 1},
        settings or {},
        frozenset(typed),
        checkpoint=checkpoint,
        config=config or {},
    )


def test_new_run_takes_its_model_seed_steps_and_typed_options(threads):
    PPOEngine(
        plan_of(
            {"lr": 0.1},
            ("envs", "frozen"),
            steps=500,
            envs=3,
            frozen="never",
            device="cuda",
            threads=2,
        )
    )
    config = {
        "total_steps": 500,
        "lr": 0.1,
        "model": {"a": 1},
        "seed": 7,
        "num_envs": 3,
        "frozen": "never",
    }
    assert Built.made == ("new", ("Env-v0", config), {"record": None})
    assert threads == [(None, 2)]
    PPOEngine(plan_of({"total_steps": 9}, ("record", "framework"), record="here", framework="tf"))
    config = {"total_steps": 9, "model": {"a": 1}, "seed": 7, "framework": "tf"}
    assert Built.made == ("new", ("Env-v0", config), {"record": Path("here")})
    assert threads[1:] == [("tf", 1)]
    PPOEngine(plan_of(record="here"))  # written down, but not typed
    assert Built.made[2] == {"record": None}


def test_setting_and_an_option_for_one_key_clash(threads):
    with pytest.raises(ConfigError, match=r"--set: 'num_envs' is also set by an option\. Set it"):
        PPOEngine(plan_of({"num_envs": 3, "lr": 1}, ("envs", "device"), envs=4, device="cpu"))


@pytest.mark.parametrize(
    ("settings", "saved", "steps", "expected"),
    [
        ({}, 100, 100, {"total_steps": 400}),  # the schedule spanned the run, which is longer now
        ({}, 300, 100, {}),
        ({}, None, 100, {}),
        ({"total_steps": 5}, 100, 100, {"total_steps": 5}),
        ({"total_steps": 5}, 300, 100, {"total_steps": 5}),
        ({"env_config": {"y": 1}}, 300, 100, {"env_config": {"y": 1}}),
    ],
)
def test_resumed_run_keeps_its_config(settings, saved, steps, expected, threads):
    config = {
        "env": "Other-v0",
        "steps": steps,
        "algorithm": {"total_steps": saved, "env_config": {"x": 1}},
    }
    folder = Path("run/checkpoint")
    PPOEngine(plan_of(settings, ("device",), folder, config, steps=400, device="cpu", threads=3))
    named = {"config": {"env_config": {"x": 1}, **expected, "device": "cpu"}, "record": None}
    assert Built.made == ("restored", (folder, "Other-v0"), named)
    assert threads == [(folder / "policy", 3)]


def test_config_is_checked_before_anything_is_built():
    PPOEngine.check(plan_of({"lr": 0.1}))
    with pytest.raises(ConfigError, match="lr"):
        PPOEngine.check(plan_of({"lr": "fast"}))


@pytest.mark.parametrize(
    ("options", "kinds", "evaluated"),
    [
        ({}, [Log, Checkpoints], None),
        ({"eval_every": 1, "stop_at": 0.0}, [Evaluation, StopAt, Log, Checkpoints], True),
        ({"stop_at": 5.0}, [StopAt, Log, Checkpoints], False),
        ({"eval_every": 20}, [Evaluation, Log, Checkpoints], None),
    ],
)
def test_run_logs_before_it_keeps_its_state(options, kinds, evaluated, threads, tmp_path):
    plan = plan_of(steps=70, checkpoint_every=30, keep_checkpoints=4, **options)
    algo_engine, added, learned = PPOEngine(plan), [], []
    algo = algo_engine.algorithm
    algo.add_callbacks, algo._learn, algo.stopping, algo.steps = (
        added.extend,
        learned.append,
        "enough",
        70,
    )
    algo.stop = lambda: learned.append("stopped")
    session = SimpleNamespace(options=plan.options, folder=tmp_path, report=print, stopping=None)
    algo_engine.learn(session)
    assert [type(callback) for callback in added] == kinds
    assert (learned, session.stopping, algo_engine.steps) == ([70], "enough", 70)
    assert (added[-1].folder, added[-1].every.steps, added[-1].keep) == (tmp_path, 30, 4)
    assert added[-2].write is print
    if "eval_every" in options:
        assert (added[0].folder, added[0].every.steps, added[0].episodes) == (
            tmp_path / "best",
            options["eval_every"],
            10,
        )
    assert [callback.evaluated for callback in added if isinstance(callback, StopAt)] == [
        evaluated
    ] * ("stop_at" in options)
    algo_engine.close()
    assert learned == [70, "stopped"]


def test_number_that_is_not_finite_names_the_last_good_policy(threads, tmp_path):
    plan = plan_of()
    algo_engine = PPOEngine(plan)

    def fail(steps):
        raise NonFiniteError("the loss is NaN.")

    algo_engine.algorithm.add_callbacks, algo_engine.algorithm._learn = list, fail
    session = SimpleNamespace(options=plan.options, folder=tmp_path, report=print)
    with pytest.raises(NonFiniteError) as caught:
        algo_engine.learn(session)
    assert (
        str(caught.value) == f"the loss is NaN. The last good policy is in {tmp_path / 'policy'}."
    )


def test_run_that_is_done_ends_at_once():
    assert PPOEngine.ends_at_once is True
    assert PPOEngine.algorithms == ("PPO", "A2C", "PG")


# --- `rlcatalog evaluate` -------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch):
    """Return what `evaluate` asks of the functions that it calls; the folder `run` has a config,
    `saved` has none.
    """
    calls = {}

    def note(name, result=None):
        def called(*arguments, **named):
            calls[name] = (arguments, named)
            return result

        return called

    envs = SimpleNamespace(close=note("close"))
    monkeypatch.setattr(
        commands, "policy_of", lambda folder: folder / "policy" if folder.name == "run" else folder
    )
    monkeypatch.setattr(commands, "import_modules", note("import"))
    monkeypatch.setattr(
        commands,
        "read_manifest",
        note("manifest", SimpleNamespace(framework="tf", config={"m": 1})),
    )
    env_of = commands.env_of
    run = note("config", ("Run-v0", {"size": 3}))
    monkeypatch.setattr(
        commands, "env_of", lambda at, names: (run if at.name == "run" else env_of)(at, names)
    )
    monkeypatch.setattr(commands, "unwritten_spaces", lambda manifest, make: {})
    monkeypatch.setattr(commands, "set_threads", note("threads"))
    monkeypatch.setattr(rlcatalog, "load", note("load", "policy"))
    monkeypatch.setattr(environments, "vector", note("vector", envs))
    monkeypatch.setattr(video, "windowed", note("windowed", envs))
    monkeypatch.setattr(video, "filmed", note("filmed", envs))
    film = SimpleNamespace(path="film.mp4", episodes=2, frames=1234, write=note("write"))
    monkeypatch.setattr(video, "Film", lambda path: film)

    class Maker:
        def __init__(self, *arguments):
            calls["maker"] = arguments

        def __call__(self):
            return "env"

    monkeypatch.setattr(environments, "EnvMaker", Maker)

    @contextmanager
    def show_progress(text, total, *, unit, quiet):
        calls["progress"] = [(text, total, unit, quiet)]
        yield lambda *done: calls["progress"].append(done)

    monkeypatch.setattr(commands, "show_progress", show_progress)

    def play(policy, played, episodes, *, on_episode, **options):
        assert (policy, played) == ("policy", envs)
        calls["play"] = (episodes, options)
        on_episode(1.0)
        on_episode(2.0)

    monkeypatch.setattr(commands, "play", play)
    return calls


def test_run_is_evaluated_in_its_environment(command, capsys):
    commands.evaluate(Path("run"))
    assert command["progress"] == [("playing Run-v0", 100, "episodes", False), (1, 1.0), (2, 1.5)]
    assert command["play"] == (100, {"seed": 10_000, "explore": False})
    assert command["threads"] == (("tf", 1), {})
    assert command["import"] == (([],), {})
    make, count = command["vector"][0]
    assert count == 20
    assert (make(), command["maker"][:3]) == ("env", ("Run-v0", {"size": 3}, {"m": 1}))
    assert make("human") == "env"
    assert command["maker"][1] == {"size": 3, "render_mode": "human"}
    assert "close" in command
    assert capsys.readouterr().out == "mean return 1.50\n"
    assert not command.keys() & {"windowed", "filmed", "write"}


def test_options_of_an_evaluation_are_passed_on(command, capsys):
    commands.evaluate(Path("saved"), 3, "Env-v0", ["a_module"], 5, True, 4, quiet=True)
    assert command["progress"][0] == ("playing Env-v0", 3, "episodes", True)
    assert command["play"] == (3, {"seed": 5, "explore": True})
    assert (command["threads"][0], command["import"][0], command["vector"][0][1]) == (
        ("tf", 4),
        (["a_module"],),
        3,
    )
    assert "config" not in command
    with pytest.raises(SavedPolicyError, match=r"^saved: the policy was saved without its run"):
        commands.evaluate(Path("saved"))
    commands.evaluate(Path("run"), env="Env-v0", render=True, quiet=True)
    assert command["windowed"][0][1] == "Env-v0"
    assert "filmed" not in command
    capsys.readouterr()


def test_film_is_written_at_the_end(command, capsys):
    commands.evaluate(Path("run"), 7, video=Path("film.mp4"), quiet=True)
    assert (command["filmed"][0][1], command["filmed"][0][3], command["write"]) == (
        "Run-v0",
        7,
        ((), {}),
    )
    assert "vector" not in command
    assert (
        capsys.readouterr().out
        == "video: film.mp4 (episodes: 2, frames: 1,234)\nmean return 1.50\n"
    )
    with pytest.raises(ConfigError, match="--video and --render"):
        commands.evaluate(Path("run"), video=Path("film.mp4"), render=True)


# --- the conformance check ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "message"), [(True, None), (False, "does not change these weights: w")]
)
def test_check_trains_once_compares_and_closes(moves, message, monkeypatch):
    notes, weights = [], {"w": np.zeros(2)}

    class Checked:
        def __init__(self, env, config, catalog):
            notes.append(
                (catalog, config["framework"], config["model"], parse(config, PPOConfig).num_epochs)
            )
            self.policy = SimpleNamespace(model=None)

        def train(self):
            weights["w"] = weights["w"] + moves

        def stop(self):
            notes.append("stopped")

    monkeypatch.setattr(checks, "PPO", Checked)
    monkeypatch.setattr(
        checks, "update_example", lambda part: SimpleNamespace(config={"fcnet_hiddens": [3]})
    )
    monkeypatch.setattr(checks, "trained_weights", lambda model: dict(weights))
    part = SimpleNamespace(framework="tf", catalog="catalog")
    if message is None:
        checks.ppo_moves_every_weight.run(part)
    else:
        with pytest.raises(AssertionError, match=message):
            checks.ppo_moves_every_weight.run(part)
    assert notes == [("catalog", "tf", {"fcnet_hiddens": [3]}, 1), "stopped"]


def test_check_is_skipped_where_ppo_serves_no_such_part(monkeypatch):
    def refuse(*arguments, **named):
        raise NotServedError("no density")

    monkeypatch.setattr(checks, "PPO", refuse)
    monkeypatch.setattr(checks, "update_example", lambda part: SimpleNamespace(config={}))
    with pytest.raises(NotApplicable, match="no density"):
        checks.ppo_moves_every_weight.run(SimpleNamespace(framework="tf", catalog=None))
