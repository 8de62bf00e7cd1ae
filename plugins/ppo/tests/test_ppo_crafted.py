"""Crafted checkpoints and records of runs: nothing is imported, and each error is typed.

Thousands at random: `tests/attacks/test_runs.py`.
"""

import json
import shutil
import sys

import gymnasium as gym
import pytest

from rlcatalog.errors import CatalogError, ResumeWarning, SavedPolicyError
from rlcatalog_cli import main
from rlcatalog_policy import checksum_of
from rlcatalog_ppo import PPO, checkpoints
from rlcatalog_ppo.callbacks import Evaluation

SMALL = [
    "--steps=64",
    "--framework=torch",
    "--set=num_envs=2",
    "--set=rollout_length=16",
    "--set=minibatch_size=16",
    "--set=num_epochs=1",
    "--model=fcnet_hiddens=[4]",
    "--quiet",
]


class MakesAnotherEnv(gym.Env):
    """Makes the environment whose id is `inner` in its config."""

    def __init__(self, inner="CartPole-v1", **_):
        self.inner = gym.make(inner).unwrapped
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.inner.reset(seed=seed)

    def step(self, action):
        return self.inner.step(action)


gym.register("MakesAnotherEnv-v0", entry_point=MakesAnotherEnv)


def run_command(*arguments):
    """Run `rlcatalog ARGUMENTS`, and return its exit status."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return end.value.code or 0


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    evaluation = ["--eval-every", 32, "--eval-episodes", 1]
    status = run_command("train", "MakesAnotherEnv-v0", *SMALL, "--out", folder, *evaluation)
    assert status == 0
    return folder


@pytest.fixture
def run(trained_run, tmp_path):
    """The folder of a run of 64 steps, which a test may change."""
    return shutil.copytree(trained_run, tmp_path / "run")


@pytest.fixture
def craft(run):
    """Return a function that changes the state in the run's last checkpoint and signs it."""

    def craft(change):
        path = run / "checkpoints" / "step-000000064" / "training.json"
        about = json.loads(path.read_text())
        change(about["state"])
        about["checksum"] = checksum_of(about)
        path.write_text(json.dumps(about))

    return craft


def edit_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# --- imports --------------------------------------------------------------------------------------


@pytest.fixture
def evil_module(tmp_path, monkeypatch):
    """Make a module that can be imported; fail if a test has imported it."""
    (tmp_path / "evil_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    was_imported = sys.modules.pop("evil_module", None) is not None
    assert not was_imported


#: Gymnasium would import the module before the colon.
EVIL_ENV_CONFIG = {"inner": "evil_module:CartPole-v1"}


def test_checkpoint_with_an_import_path_is_an_error(run, craft, evil_module):
    craft(lambda state: state["config"].update(env_config=EVIL_ENV_CONFIG))

    with pytest.raises(SavedPolicyError, match="names the import path") as caught:
        PPO.restore(run)

    assert "training.json: names the import path" in str(caught.value)
    assert "config={'env_config': …}" in str(caught.value)


def test_restore_with_an_env_config_ignores_the_crafted_one(run, craft, evil_module):
    craft(lambda state: state["config"].update(env_config=EVIL_ENV_CONFIG))

    PPO.restore(run, config={"env_config": {}}).stop()


def test_resume_takes_the_env_config_from_config_json(run, craft, evil_module):
    craft(lambda state: state["config"].update(env_config=EVIL_ENV_CONFIG))

    assert run_command("train", "--resume", run, "--steps", 96, "--quiet") == 0


def test_config_json_with_an_import_path_is_an_error(run, evil_module, capsys):
    algorithm = json.loads((run / "config.json").read_text())["algorithm"]
    edit_json(run / "config.json", algorithm={**algorithm, "env_config": EVIL_ENV_CONFIG})

    status = run_command("train", "--resume", run, "--steps", 128, "--quiet")

    assert status == 1
    error = capsys.readouterr().err
    assert "config.json: names the import path 'evil_module:CartPole-v1'" in error


def test_module_in_config_json_is_not_imported(run, evil_module):
    edit_json(run / "config.json", env_module="evil_module")

    assert run_command("train", "--resume", run, "--steps", 96, "--quiet") == 0
    assert run_command("evaluate", run, "--episodes", 1, "--quiet") == 0


# --- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [-1, 625])
def test_position_of_a_generator_out_of_bounds_is_an_error(run, craft, position):
    """NumPy accepts it, and reads beyond its memory at the next draw."""

    def set_position(state):
        # The position is the third entry in the state of `np.random`; it is from 0 to 624.
        state["randomness"]["numpy"]["$tuple"][2] = position

    craft(set_position)

    with pytest.raises(SavedPolicyError, match=r"\.json: not a checkpoint, or damaged: "):
        PPO.restore(run)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda state: state.clear(), id="no state"),
        pytest.param(lambda state: state.update(steps=10**30), id="many steps"),
        pytest.param(lambda state: state.update(config=[]), id="config"),
        pytest.param(lambda state: state["config"].update(num_envs=10**9), id="many environments"),
        pytest.param(lambda state: state["config"].update(no_such_key=1), id="config key"),
        pytest.param(lambda state: state["learner"]["optimizer"].update(first={}), id="moments"),
        pytest.param(
            lambda state: state["collector"].update(encoded=state["collector"]["rewards"]),
            id="another array",
        ),
        pytest.param(
            lambda state: state["randomness"]["policy"].update(cpu=state["collector"]["returns"]),
            id="torch",
        ),
        pytest.param(
            lambda state: state.update(generator={"bit_generator": "PCG64"}), id="generator"
        ),
        pytest.param(lambda state: state.update(environments=[{}, {}]), id="environments"),
        pytest.param(
            lambda state: state["collector"].update(rewards={"$array": "no/such"}), id="array"
        ),
    ],
)
def test_crafted_state_raises_a_typed_error(run, craft, change):
    craft(change)

    with pytest.raises(CatalogError) as caught:
        PPO.restore(run)

    message = str(caught.value)
    assert str(run) in message or "config key" in message


def test_state_that_does_not_fit_a_callback_names_it(run, craft):
    craft(lambda state: state["callbacks"].update(Evaluation={"periods": "x"}))
    algo = PPO.restore(run)

    with pytest.raises(SavedPolicyError, match="Evaluation: the saved state does not fit"):
        algo.add_callbacks([Evaluation(32)])

    algo.stop()


# --- sizes ----------------------------------------------------------------------------------------


def test_checkpoint_that_is_too_long_leaves_actions_out(run, monkeypatch, tmp_path):
    algo = PPO.restore(run)
    algo.save_checkpoint(tmp_path / "complete")
    size = (tmp_path / "complete" / "training.json").stat().st_size
    monkeypatch.setattr(checkpoints, "_MAX_BYTES", size - 1)  # one byte less than it needs

    reason = "the actions of its episode need too much space to be saved"
    with pytest.warns(ResumeWarning, match=reason):
        algo.save_checkpoint(tmp_path / "without_actions")

    # The environment cannot go on in its episode, because its earlier actions are unknown.
    with pytest.warns(ResumeWarning, match=reason):
        PPO.restore(tmp_path / "without_actions")


# --- `runs` and `compare` -------------------------------------------------------------------------


def list_run(run, capsys):
    """Return what `rlcatalog runs --json` prints of a run."""
    assert run_command("runs", run, "--json") == 0
    return json.loads(capsys.readouterr().out)


def compare_run(run):
    """Return the exit status of `rlcatalog compare`."""
    return run_command("compare", run, "--out", run.parent / "picture.png")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("config.json", {"env": "$\\frac$"}, id="env-mathtext"),
        pytest.param("config.json", {"env": "\ud800"}, id="env-surrogate"),
        pytest.param(
            "config.json",
            {"framework": "$\\frac$", "model": {"$\\frac$": "\ud800"}},
            id="label-mathtext",
        ),
        pytest.param("run.json", {"started": "9999-12-31T23:59:59-23:00"}, id="after-year-9999"),
    ],
)
def test_odd_texts_of_a_run_are_shown(run, name, changes, capsys):
    edit_json(run / name, **changes)

    assert list_run(run, capsys)["status"] != "damaged"
    assert compare_run(run) == 0
    assert "damaged" not in capsys.readouterr().err


def assert_is_shown_as_damaged(run, capsys):
    assert list_run(run, capsys)["status"] == "damaged"
    assert compare_run(run) == 1
    assert "damaged" in capsys.readouterr().err


def test_run_with_a_deeply_nested_config_is_damaged(run, capsys):
    nested = 0
    for _ in range(800):
        nested = [nested]
    edit_json(run / "config.json", model={"x": nested})

    assert_is_shown_as_damaged(run, capsys)


@pytest.mark.parametrize(
    "row",
    [
        {"timesteps_total": 1.0, "episode_return_mean": 1.7e308},
        {"timesteps_total": -1},
    ],
    ids=["return", "steps"],
)
def test_run_with_a_number_out_of_bounds_is_damaged(run, row, capsys):
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")

    assert_is_shown_as_damaged(run, capsys)
