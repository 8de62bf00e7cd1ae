"""Checkpoints as someone would craft them: nothing is imported or run for them, and each error is
typed.

Thousands at random: `tests/attacks/test_runs.py`.
"""

import json
import shutil
import sys

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import ResumeWarning, SavedPolicyError
from rlcatalog_cli import main
from rlcatalog_policy import checksum_of
from rlcatalog_ppo import PPO, checkpoints
from rlcatalog_ppo.callbacks import Evaluation
from rlcatalog_ppo.training_state import check_fits, check_generators

SMALL = [
    "--steps",
    "64",
    "--framework",
    "torch",
    "--set",
    "num_envs=2",
    "--set",
    "rollout_length=16",
    "--set",
    "minibatch_size=16",
    "--set",
    "num_epochs=1",
    "--model",
    "fcnet_hiddens=[4]",
    "--quiet",
]


class Outer(gym.Env):
    """Makes another environment, by the id in its config."""

    def __init__(self, inner="CartPole-v1", **_):
        self.inner = gym.make(inner).unwrapped
        self.observation_space, self.action_space = (
            self.inner.observation_space,
            self.inner.action_space,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.inner.reset(seed=seed)

    def step(self, action):
        return self.inner.step(action)


gym.register("Outer-v0", entry_point=Outer)


def command(*arguments):
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return end.value.code


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert not command(
        "train", "Outer-v0", *SMALL, "--out", folder, "--eval-every", 32, "--eval-episodes", 1
    )
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A run that may be changed, and goes on."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def craft(run):
    """Change the state of the run's last checkpoint and sign it: `craft(change)`."""

    def crafted(change):
        path = run / "checkpoints" / "step-000000064" / "training.json"
        about = json.loads(path.read_text())
        change(about["state"])
        about["checksum"] = checksum_of(about)
        path.write_text(json.dumps(about))

    return crafted


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Whether a module `evil_module`, which can be imported, was."""
    (tmp_path / "evil_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: "evil_module" in sys.modules
    sys.modules.pop("evil_module", None)


def test_a_checkpoint_imports_nothing(run, craft, imported, capsys):
    craft(lambda state: state["config"].update(env_config={"inner": "evil_module:CartPole-v1"}))
    with pytest.raises(
        SavedPolicyError,
        match=r"training\.json: names the import path .*config=\{'env_config': …\}",
    ):
        PPO.restore(run)
    PPO.restore(run, config={"env_config": {}}).stop()
    # The command takes the environment's config from config.json, which it has checked.
    assert not command("train", "--resume", run, "--steps", 96, "--quiet")
    config = json.loads((run / "config.json").read_text())
    config["algorithm"]["env_config"] = {"inner": "evil_module:CartPole-v1"}
    (run / "config.json").write_text(json.dumps(config))
    assert command("train", "--resume", run, "--steps", 128, "--quiet") == 1
    assert "config.json: names the import path 'evil_module:CartPole-v1'" in capsys.readouterr().err
    assert not imported()


def test_module_that_a_config_notes_is_not_imported(run, imported):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "env_module": "evil_module"}))
    assert not command("train", "--resume", run, "--steps", 96, "--quiet")
    assert not command("evaluate", run, "--episodes", 1, "--quiet")
    assert not imported()


@pytest.mark.parametrize("position", [10**9, -1, 625, None, 0.5, True])
def test_generators_position_beside_its_numbers_is_refused(run, craft, position):
    """NumPy takes it, and reads beside its memory at the next number that is drawn."""

    def change(state):
        state["randomness"]["numpy"]["$tuple"][2] = position

    craft(change)
    with pytest.raises(SavedPolicyError, match=r"training\.json: not a checkpoint, or damaged: "):
        PPO.restore(run)


@pytest.mark.parametrize(
    "kind", [np.random.MT19937, np.random.Philox, np.random.PCG64, np.random.SFC64]
)
def test_positions_are_checked_wherever_they_stand(kind):
    rng = np.random.Generator(kind(1))
    for _ in range(700):
        rng.random()
        check_generators([{"levels": (rng.bit_generator.state,)}])
    old = np.random.RandomState(1)
    old.random(100)
    check_generators(("x", old.get_state()))


@pytest.mark.parametrize(
    "state",
    [
        {"bit_generator": "MT19937", "state": {"pos": 625}},
        {"bit_generator": "MT19937", "state": {"pos": -1}},
        {"bit_generator": "MT19937"},
        {"bit_generator": "MT19937", "state": [1]},
        {"bit_generator": "Philox", "buffer_pos": -1},
        {"bit_generator": "Philox", "buffer_pos": 5},
        {"bit_generator": "Philox"},
        ("MT19937", [0] * 624, 10**9, 0, 0.0),
        ["MT19937", [], -1],
    ],
    ids=str,
)
def test_wrong_position_is_found_wherever_it_stands(state):
    with pytest.raises(ValueError, match="the position of a generator"):
        check_generators({"environments": [{"levels": [{"own": state}]}]})


CHANGES = {
    "no state": lambda state: state.clear(),
    "steps": lambda state: state.update(steps=-1),
    "many steps": lambda state: state.update(steps=10**30),
    "config": lambda state: state.update(config=[]),
    "many environments": lambda state: state["config"].update(num_envs=10**9),
    "a key": lambda state: state["config"].update(no_such_key=1),
    "rollout": lambda state: state["config"].update(rollout_length="x"),
    "moments": lambda state: state["learner"]["optimizer"].update(first={}),
    "another array": lambda state: state["collector"].update(encoded=state["collector"]["rewards"]),
    "episodes": lambda state: state["collector"]["episodes"].update(returns=["x"]),
    "deque": lambda state: state["collector"]["episodes"].update(returns=[0.0] * 101),
    "python": lambda state: state["randomness"].update(
        python={"$tuple": [3, {"$tuple": [1]}, None]}
    ),
    "torch": lambda state: state["randomness"]["policy"].update(cpu=state["collector"]["returns"]),
    "generator": lambda state: state.update(generator={"bit_generator": "PCG64"}),
    "place": lambda state: state.update(environments=[{}, {}]),
    "callbacks": lambda state: state.update(callbacks=[]),
    "float": lambda state: state.update(seconds={"$float": "nan"}),
    "array": lambda state: state["collector"].update(rewards={"$array": "no/such"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_crafted_state_ends_in_a_typed_error(run, craft, change):
    craft(change)
    with pytest.raises(rlcatalog.errors.CatalogError) as caught:
        PPO.restore(run)
    assert str(run) in str(caught.value) or "config key" in str(caught.value)


@pytest.mark.parametrize(
    "seen", [1, {"x": None}, {"x": {"y": [0, 0]}}, {"x": np.zeros(3)}], ids=str
)
def test_what_a_crafted_state_says_was_seen_is_arrays_of_a_row_for_each_environment(seen):
    config = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "minibatch_size": 8}
    algo = PPO(
        "CartPole-v1",
        config | {"model": {"use_lstm": True, "lstm_cell_size": 2, "fcnet_hiddens": [2]}},
    )
    now, state = algo.state(), algo.state()
    algo.stop()
    check_fits(state, now)
    state["collector"]["state"]["seen"] = seen
    with pytest.raises(ValueError, match="collector/state/seen: expected arrays of 2 rows, found"):
        check_fits(state, now)


def test_callback_that_cannot_go_on_says_so(run, craft):
    craft(lambda state: state["callbacks"].update(Evaluation={"periods": "x"}))
    algo = PPO.restore(run)
    with pytest.raises(SavedPolicyError, match="Evaluation: the saved state does not fit"):
        algo.add_callbacks([Evaluation(32)])
    algo.stop()


def test_actions_that_take_too_much_room_are_left_out(run, monkeypatch, tmp_path):
    algo = PPO.restore(run)
    algo.save_checkpoint(tmp_path / "whole")
    most = (tmp_path / "whole" / "training.json").stat().st_size - 1
    monkeypatch.setattr(checkpoints, "_LONGEST", most)
    reason = "the actions of its episode need too much space to be saved"
    with pytest.warns(ResumeWarning, match=reason):
        algo.save_checkpoint(tmp_path / "checkpoint")
    algo.stop()
    with pytest.warns(ResumeWarning, match=reason):
        PPO.restore(tmp_path / "checkpoint").stop()


def test_long_checkpoint_is_not_read(run, monkeypatch):
    monkeypatch.setattr(checkpoints, "_LONGEST", 1_000)
    with pytest.raises(
        SavedPolicyError, match=r"training\.json: is too large: it has \d+ bytes; at most 1000"
    ):
        PPO.restore(run)


# --- what `runs` and `compare` read ---------------------------------------------------------------


def edited(name, **changes):
    def edit(run):
        (run / name).write_text(json.dumps({**json.loads((run / name).read_text()), **changes}))

    return edit


def nested(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


def metrics(**row):
    return lambda run: (run / "metrics.jsonl").write_text(
        json.dumps({"timesteps_total": 1.0, **row}) + "\n"
    )


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (edited("config.json", env="$\\frac$"), 0),
        (edited("config.json", env="\ud800"), 0),
        (edited("config.json", framework="$\\frac$", model={"$\\frac$": "\ud800"}), 0),
        (edited("config.json", model={"x": nested(800)}), 1),
        (edited("run.json", started="9999-12-31T23:59:59-23:00"), 0),
        (edited("run.json", seconds="x"), 1),
        (metrics(episode_return_mean=1.7e308), 1),
        (metrics(timesteps_total=-1), 1),
    ],
    ids=range(8),
)
def test_crafted_summaries_are_shown_or_named(run, change, status, capsys):
    change(run)
    (run / "metrics.jsonl").touch()
    assert not command("runs", run, "--json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"] == "damaged") == bool(status)
    assert command("compare", run, "--out", run.parent / "picture.png") == status
    assert ("damaged" in capsys.readouterr().err) == bool(status)
