"""The command `rlcatalog evaluate`: what it passes on to the functions that load and play."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import rlcatalog
from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_ppo import commands, environments, video
from rlcatalog_runs.evaluation import EpisodeResult

#: The environment of the run in the folder `run`.
RUN_ENV = "Run-v0"


class Call(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@pytest.fixture
def calls(monkeypatch):
    """The last `Call` of each function that `evaluate` calls; none of them plays or loads.

    The folder `run` is a run's, with a config; any other folder has only a policy. Each policy is
    for TensorFlow and has the model config `{"fcnet_hiddens": [3]}`. Two episodes are played, with
    the returns 1 and 2 and the lengths 10 and 30.
    """
    calls = {}

    def replace(module, name, *, key, result=None):
        def record(*arguments, **keywords):
            calls[key] = Call(arguments, keywords)
            return result

        monkeypatch.setattr(module, name, record)

    manifest = SimpleNamespace(framework="tf", config={"fcnet_hiddens": [3]})
    envs = SimpleNamespace(close=lambda: calls.update(close=True))
    film = SimpleNamespace(
        path="film.mp4", episodes=2, frames=1234, write=lambda: calls.update(write_film=True)
    )
    replace(commands, "import_modules", key="import_modules")
    replace(commands, "read_manifest", key="read_manifest", result=manifest)
    replace(commands, "unwritten_spaces", key="unwritten_spaces", result={})
    replace(commands, "set_threads", key="set_threads")
    replace(rlcatalog, "load", key="load", result="policy")
    replace(video, "make_window_env", key="make_window_env", result=envs)
    replace(video, "make_film_envs", key="make_film_envs", result=envs)
    replace(video, "Film", key="Film", result=film)

    def policy_of(folder):
        return folder / "policy" if folder.name == "run" else folder

    original_env_of = commands.env_of

    def env_of(folder, modules):
        if folder.name == "run":
            calls["env_of"] = folder
            return RUN_ENV, {"size": 3}
        return original_env_of(folder, modules)

    class FakeEnvMaker:
        def __init__(self, env, env_config, model, catalog):
            calls["env_maker"] = {"env": env, "env_config": env_config, "model": model}

        def __call__(self):
            return "env"

        def evaluation_vector(self, episodes, seed):
            calls["evaluation_vector"] = {"episodes": episodes, "seed": seed}
            return envs

    @contextmanager
    def show_progress(text, total, *, unit, quiet):
        calls["progress"] = [(text, total, unit, quiet)]
        yield SimpleNamespace(update=lambda *figures: calls["progress"].append(figures))

    def play_episodes(policy, vector_env, episodes, *, on_episode, **options):
        assert policy == "policy"
        assert vector_env is envs
        calls["play"] = {"episodes": episodes, **options}
        results = [EpisodeResult(1.0, 10), EpisodeResult(2.0, 30)]
        for result in results:
            on_episode(result)
        return results

    monkeypatch.setattr(commands, "policy_of", policy_of)
    monkeypatch.setattr(commands, "env_of", env_of)
    monkeypatch.setattr(environments, "EnvMaker", FakeEnvMaker)
    monkeypatch.setattr(commands, "show_progress", show_progress)
    monkeypatch.setattr(commands, "play_episodes", play_episodes)
    return calls


# --- defaults -------------------------------------------------------------------------------------


def test_evaluate_plays_100_likely_episodes_by_default(calls):
    commands.evaluate(Path("run"))

    assert calls["play"] == {"episodes": 100, "seed": 10_000, "explore": False}


#: The output for the returns 1 and 2 and the lengths 10 and 30.
OUTPUT = """mean return  1.50 ± 0.50 (standard deviation)
median       1.50
mean length  20.0 steps
episodes     2, with deterministic actions
"""


def test_evaluate_prints_returns_and_lengths(calls, capsys):
    commands.evaluate(Path("run"))

    assert capsys.readouterr().out == OUTPUT


def test_evaluate_says_that_actions_are_sampled(calls, capsys):
    commands.evaluate(Path("run"), explore=True)

    assert "2, with sampled actions" in capsys.readouterr().out


def test_evaluate_prints_json(calls, capsys):
    commands.evaluate(Path("run"), as_json=True, seed=3)

    assert json.loads(capsys.readouterr().out) == {
        "env": "Run-v0",
        "policy": "run",
        "seed": 3,
        "explore": False,
        "episodes": 2,
        "return_mean": 1.5,
        "return_std": 0.5,
        "return_median": 1.5,
        "length_mean": 20.0,
        "returns": [1.0, 2.0],
        "lengths": [10, 30],
    }


def test_evaluate_shows_mean_return_as_progress(calls):
    commands.evaluate(Path("run"))

    start, *updates = calls["progress"]
    assert start == ("playing Run-v0", 100, "episodes", False)
    assert updates == [(1, 1.0), (2, 1.5)]  # episodes so far, and their mean return


def test_evaluate_sets_one_thread_by_default(calls):
    commands.evaluate(Path("run"))

    assert calls["set_threads"].args == ("tf", 1)  # the policy is for TensorFlow


def test_evaluate_imports_no_modules_by_default(calls):
    commands.evaluate(Path("run"))

    assert calls["import_modules"].args == ([],)


def test_evaluate_closes_environments(calls):
    commands.evaluate(Path("run"))

    assert calls["close"]


def test_evaluate_neither_films_nor_shows_by_default(calls):
    commands.evaluate(Path("run"))

    assert not calls.keys() & {"make_window_env", "make_film_envs", "write_film"}


# --- environments ---------------------------------------------------------------------------------


def test_run_is_played_in_its_environment(calls):
    commands.evaluate(Path("run"))

    assert calls["evaluation_vector"] == {"episodes": 100, "seed": 10_000}
    assert calls["env_maker"] == {
        "env": "Run-v0",
        "env_config": {"size": 3},  # of the run
        "model": {"fcnet_hiddens": [3]},  # of the policy
    }


def test_render_mode_is_added_to_config_of_environment(calls):
    commands.evaluate(Path("run"), video=Path("film.mp4"))
    make_env, *_ = calls["make_film_envs"].args

    assert make_env("human") == "env"
    assert calls["env_maker"]["env_config"] == {"size": 3, "render_mode": "human"}


def test_policy_without_run_needs_an_environment(calls):
    with pytest.raises(SavedPolicyError, match="saved without its run") as caught:
        commands.evaluate(Path("saved"))

    assert str(caught.value).startswith("saved: ")


def test_policy_without_run_is_played_in_named_environment(calls):
    commands.evaluate(Path("saved"), env="Env-v0")

    assert calls["env_maker"]["env"] == "Env-v0"
    assert "env_of" not in calls  # no run's config was read


# --- options --------------------------------------------------------------------------------------


def test_options_of_episodes_are_passed_on(calls):
    commands.evaluate(Path("saved"), episodes=3, env="Env-v0", seed=5, explore=True)

    assert calls["play"] == {"episodes": 3, "seed": 5, "explore": True}
    assert calls["evaluation_vector"] == {"episodes": 3, "seed": 5}


def test_modules_are_imported(calls):
    commands.evaluate(Path("saved"), env="Env-v0", modules=["a_module"])

    assert calls["import_modules"].args == (["a_module"],)


def test_threads_are_set(calls):
    commands.evaluate(Path("saved"), env="Env-v0", threads=4)

    assert calls["set_threads"].args == ("tf", 4)


def test_quiet_evaluation_shows_no_progress(calls):
    commands.evaluate(Path("saved"), episodes=3, env="Env-v0", quiet=True)

    assert calls["progress"][0] == ("playing Env-v0", 3, "episodes", True)


def test_rendered_evaluation_opens_window(calls):
    commands.evaluate(Path("run"), env="Env-v0", render=True, quiet=True)

    _, env, *_ = calls["make_window_env"].args
    assert env == "Env-v0"
    assert "make_film_envs" not in calls


# --- films ----------------------------------------------------------------------------------------


def test_video_films_episodes(calls):
    commands.evaluate(Path("run"), episodes=7, video=Path("film.mp4"), quiet=True)

    _, env, _, episodes, *_ = calls["make_film_envs"].args
    assert env == "Run-v0"
    assert episodes == 7
    assert calls["write_film"]
    assert "evaluation_vector" not in calls


def test_video_is_described(calls, capsys):
    commands.evaluate(Path("run"), video=Path("film.mp4"), quiet=True)

    # The film of the fixture has 2 episodes and 1,234 frames.
    assert capsys.readouterr().out == (f"video: film.mp4 (episodes: 2, frames: 1,234)\n{OUTPUT}")


def test_video_and_window_at_once_are_an_error(calls):
    with pytest.raises(ConfigError, match="--video and --render"):
        commands.evaluate(Path("run"), video=Path("film.mp4"), render=True)
