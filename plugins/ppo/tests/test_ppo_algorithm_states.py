"""The state of an algorithm: what it holds, what restoring it brings back, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from short_env import NET, QUICK, Short, same, weights_of

from rlcatalog.errors import CatalogError, ConfigError, ResumeWarning, SavedPolicyError
from rlcatalog_policy import Frozen
from rlcatalog_ppo import A2C, PPO, algorithm
from rlcatalog_ppo.callbacks import Callback


@pytest.fixture(autouse=True)
def _count_from_zero():
    Short.made = Short.closed = 0


class Keeps(Callback):
    """Keeps a number."""

    def __init__(self, number=None):
        self.number = number

    def get_state(self):
        return self.number

    def set_state(self, state):
        if state == "bad":
            raise KeyError("bad")
        self.number = state


class KeepsToo(Keeps):
    pass


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_state_brings_back_weights_filter_optimiser_and_counts(observation_filter):
    config = {
        **QUICK,
        "kl_coeff": 0.5,
        "kl_target": 1e9,
        "model": {**NET, "observation_filter": observation_filter},
    }
    algo = PPO(Short, config)
    algo.train()
    state, weights, result = algo.state(), weights_of(algo), algo.train()
    assert result["info"]["learner"]["kl_coeff"] == 0.25
    assert not same(weights, weights_of(algo))
    later = algo.state()
    algo.set_back(state)
    assert (algo.steps, algo.iterations, algo.state()["seconds"]) == (8, 1, state["seconds"])
    assert same(weights, weights_of(algo))
    back = algo.state()
    for name in ("learner", "policy"):
        for part, other, whether in ((back, state, True), (later, state, False)):
            assert (repr(part[name]) == repr(other[name])) is whether, name
    assert algo.policy.filter is None or repr(back["policy"]["filter"]) != repr(
        later["policy"]["filter"]
    )


def test_states_of_callbacks_wait_for_their_callbacks(tmp_path):
    algo = PPO(Short, QUICK, callbacks=[Keeps(3), KeepsToo(), Callback()])
    assert algo.state()["callbacks"] == {"Keeps": 3}
    algo.callbacks[1].number = 4
    algo.save_checkpoint(tmp_path)
    restored = PPO.restore(tmp_path, Short, callbacks=[KeepsToo()])
    assert [callback.number for callback in restored.callbacks] == [4]
    assert restored.state()["callbacks"] == {"Keeps": 3, "KeepsToo": 4}
    restored.add_callbacks([Keeps(), Keeps(9)])  # the state is the first one's
    assert [callback.number for callback in restored.callbacks] == [4, 3, 9]
    algo.callbacks[0].number = "bad"
    algo.save_checkpoint(tmp_path)
    with pytest.raises(
        SavedPolicyError, match="Keeps: the saved state does not fit: KeyError: 'bad'"
    ):
        PPO.restore(tmp_path, Short).add_callbacks([Keeps()])


def test_recording_goes_on_where_the_checkpoint_was(tmp_path):
    algo = PPO(Short, QUICK, record=tmp_path / "data")
    assert PPO(Short, QUICK).state()["recorded"] is None
    algo.train()
    assert algo.state()["recorded"] == 1
    algo.save_checkpoint(tmp_path / "checkpoint")
    algo.train()
    again = PPO.restore(tmp_path / "checkpoint", Short, record=tmp_path / "data")
    assert again.state()["recorded"] == 1  # the second file is written again
    again.train()
    assert len(list((tmp_path / "data").iterdir())) == 2
    assert PPO.restore(tmp_path / "checkpoint", Short).state()["recorded"] is None
    PPO(Short, QUICK).save_checkpoint(tmp_path / "silent")
    assert (
        PPO.restore(tmp_path / "silent", Short, record=tmp_path / "data").state()["recorded"] == 2
    )


def test_resumed_run_draws_what_the_run_would_have_drawn(tmp_path):
    algo = PPO(Short, QUICK)
    algo.train()
    algo.save_checkpoint(tmp_path)
    algo.train()
    np.random.seed(5)
    again = PPO.restore(tmp_path, Short)
    assert (again.steps, again.iterations, again.begun_anew) == (8, 1, {})
    again.train()
    assert same(weights_of(algo), weights_of(again))
    assert algo.state()["generator"] == again.state()["generator"]


def test_checkpoint_that_does_not_fit_closes_its_environments(tmp_path):
    algo = PPO(Short, QUICK)
    algo.save_checkpoint(tmp_path)
    state = algo.state()
    state["collector"]["returns"] = np.zeros(9)
    algorithm.checkpoints.write(tmp_path, algo.policy, state)
    Short.made = Short.closed = 0
    with pytest.raises(
        SavedPolicyError,
        match="the saved state does not fit: ValueError: collector/returns: expected",
    ):
        PPO.restore(tmp_path, Short)
    assert Short.closed == Short.made > 0


def test_what_restore_reads_is_named_by_its_file(tmp_path):
    PPO(
        lambda config: Short(), {**QUICK, "env_config": {"inner": "no_such:thing"}}
    ).save_checkpoint(tmp_path / "run")
    with pytest.raises(
        CatalogError,
        match=f"{tmp_path / 'run' / 'training.json'}: names the import path 'no_such:thing'",
    ):
        PPO.restore(tmp_path / "run", lambda config: Short())
    assert (
        PPO.restore(
            tmp_path / "run", lambda config: Short(), config={"env_config": {}}
        ).config.env_config
        == {}
    )
    with pytest.raises(
        SavedPolicyError,
        match=f"{tmp_path / 'run'}: PPO wrote this checkpoint; A2C cannot resume it",
    ):
        A2C.restore(tmp_path / "run", Short)
    with pytest.raises(ConfigError, match="restore: the saved model is used"):
        PPO.restore(
            tmp_path / "run", lambda config: Short(), config={"env_config": {}, "model": {}}
        )


def test_id_is_kept_and_restored(tmp_path):
    PPO("CartPole-v1", QUICK).save_checkpoint(tmp_path / "id")
    assert PPO.restore(tmp_path / "id").state()["env"] == "CartPole-v1"
    assert PPO(Short, QUICK).state()["env"] is None


@pytest.mark.parametrize(
    ("saved", "own", "kept", "expected"),
    [
        (True, "auto", "auto", True),
        (False, "always", "always", False),
        (None, "always", "always", True),
        (True, "auto", "never", False),
        (False, "always", "auto", True),
    ],
)
def test_frozen_run_stays_frozen_if_the_config_does_not_change(saved, own, kept, expected):
    """A state that was saved before this was decided, or under another config, changes nothing."""
    algo = PPO(Short, {**QUICK, "frozen": own})
    algo.train()
    state = algo.state()
    state["frozen"], state["config"]["frozen"] = saved, kept
    algo.set_state(state)
    assert isinstance(algo.acting, Frozen) is expected


def test_environments_that_cannot_go_on_begin_new_episodes():
    algo = PPO(Short, QUICK)
    algo.train()
    state = algo.state()
    assert state["collector"]["lengths"].tolist() == [1, 1]
    mute = {"generator": {}, "why": "it is mute"}
    for places, anew in (
        ([state["environments"][0], mute], {1: "it is mute"}),
        ([mute] * 2, dict.fromkeys((0, 1), "it is mute")),
    ):
        with pytest.warns(ResumeWarning, match=f"^{len(anew)} of 2 environments cannot resume"):
            algo.set_state({**state, "environments": places})
        assert algo.begun_anew == anew
        assert algo.state()["collector"]["lengths"].tolist() == [
            0 if i in anew else 1 for i in range(2)
        ]


class OddBox(spaces.Box):
    """A space that a saved policy does not describe."""


class Odd(Short):
    """Needs its config."""

    def __init__(self, config):
        super().__init__()
        self.observation_space = OddBox(-config["most"], config["most"], (2,))


def test_a_space_that_is_not_saved_is_read_from_an_environment_with_its_config(tmp_path):
    PPO(Odd, {**QUICK, "env_config": {"most": 7}}).save_checkpoint(tmp_path)
    assert PPO.restore(tmp_path, Odd).policy.observation_space == OddBox(-7, 7, (2,))
