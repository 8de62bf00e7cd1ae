"""The state of an algorithm: what it holds, what restoring it brings back, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from short_env import QUICK, Short as ThreeStepEnv, same as are_equal, weights_of

from rlcatalog.errors import ResumeWarning, SavedPolicyError
from rlcatalog_policy import Frozen
from rlcatalog_ppo import PPO, checkpoints
from rlcatalog_ppo.callbacks import Callback

# QUICK: 2 environments, rollouts of 4 steps in each, and one minibatch.


@pytest.fixture(autouse=True)
def _count_environments_from_zero():
    """`ThreeStepEnv.made` and `closed` count its instances."""
    ThreeStepEnv.made = 0
    ThreeStepEnv.closed = 0


# --- set_back -------------------------------------------------------------------------------------


def test_set_back_restores_counts():
    algo = PPO(ThreeStepEnv, QUICK)
    algo.train()
    state = algo.state()
    algo.train()

    algo.set_back(state)

    assert algo.steps == 8  # two environments, four steps each
    assert algo.iterations == 1
    assert algo.state()["seconds"] == state["seconds"]


def test_set_back_restores_weights():
    algo = PPO(ThreeStepEnv, QUICK)
    algo.train()
    state = algo.state()
    weights = weights_of(algo)
    algo.train()
    assert not are_equal(weights, weights_of(algo))

    algo.set_back(state)

    assert are_equal(weights, weights_of(algo))


@pytest.mark.parametrize("part", ["learner", "policy"])
def test_set_back_restores_learner_and_policy(part):
    model = {"fcnet_hiddens": [3], "observation_filter": "MeanStdFilter"}
    algo = PPO(ThreeStepEnv, {**QUICK, "model": model})
    algo.train()
    state = algo.state()
    algo.train()
    later_state = algo.state()

    algo.set_back(state)

    # As text, because the states are nested and contain arrays.
    assert repr(algo.state()[part]) == repr(state[part])
    assert repr(algo.state()[part]) != repr(later_state[part])


# --- callbacks ------------------------------------------------------------------------------------


class NumberCallback(Callback):
    """Has a number as its state, and none if the number is None."""

    def __init__(self, number=None):
        self.number = number

    def get_state(self):
        return self.number

    def set_state(self, state):
        if state == "bad":
            raise KeyError("bad")
        self.number = state


class OtherNumberCallback(NumberCallback):
    """Another class, whose state is separate."""


def test_state_holds_states_of_callbacks_by_class():
    callbacks = [NumberCallback(3), OtherNumberCallback(), Callback()]

    algo = PPO(ThreeStepEnv, QUICK, callbacks=callbacks)

    assert algo.state()["callbacks"] == {"NumberCallback": 3}  # the others have no state


def save_with_callbacks(folder, *callbacks):
    PPO(ThreeStepEnv, QUICK, callbacks=callbacks).save_checkpoint(folder)


def test_restored_callback_receives_state_of_its_class(tmp_path):
    save_with_callbacks(tmp_path, NumberCallback(3), OtherNumberCallback(4))

    algo = PPO.restore(tmp_path, ThreeStepEnv, callbacks=[OtherNumberCallback()])

    assert algo.callbacks[0].number == 4


def test_state_waits_for_callback_that_is_added_later(tmp_path):
    save_with_callbacks(tmp_path, NumberCallback(3), OtherNumberCallback(4))
    algo = PPO.restore(tmp_path, ThreeStepEnv, callbacks=[OtherNumberCallback()])
    assert algo.state()["callbacks"] == {"NumberCallback": 3, "OtherNumberCallback": 4}

    # The first callback of the class receives its state.
    algo.add_callbacks([NumberCallback(), NumberCallback(9)])

    assert [callback.number for callback in algo.callbacks] == [4, 3, 9]


def test_callback_that_rejects_its_state_is_named(tmp_path):
    save_with_callbacks(tmp_path, NumberCallback("bad"))
    algo = PPO.restore(tmp_path, ThreeStepEnv)

    with pytest.raises(SavedPolicyError, match="the saved state does not fit") as caught:
        algo.add_callbacks([NumberCallback()])

    assert str(caught.value).startswith("NumberCallback: ")
    assert "KeyError: 'bad'" in str(caught.value)


# --- recordings -----------------------------------------------------------------------------------


def test_state_has_no_recording_by_default():
    assert PPO(ThreeStepEnv, QUICK).state()["recorded"] is None


def test_state_counts_recorded_rollouts(tmp_path):
    algo = PPO(ThreeStepEnv, QUICK, record=tmp_path)

    algo.train()

    assert algo.state()["recorded"] == 1


def save_after_first_of_two_rollouts(checkpoint, *, record):
    """Record two rollouts; the checkpoint is of the time between them."""
    algo = PPO(ThreeStepEnv, QUICK, record=record)
    algo.train()
    algo.save_checkpoint(checkpoint)
    algo.train()


def test_restored_run_overwrites_later_recordings(tmp_path):
    records = tmp_path / "records"
    save_after_first_of_two_rollouts(tmp_path / "checkpoint", record=records)

    algo = PPO.restore(tmp_path / "checkpoint", ThreeStepEnv, record=records)
    assert algo.state()["recorded"] == 1
    algo.train()

    assert len(list(records.iterdir())) == 2


def test_restored_run_records_only_if_asked(tmp_path):
    save_after_first_of_two_rollouts(tmp_path / "checkpoint", record=tmp_path / "records")

    algo = PPO.restore(tmp_path / "checkpoint", ThreeStepEnv)

    assert algo.state()["recorded"] is None


def test_restored_run_without_recordings_appends_to_folder(tmp_path):
    records = tmp_path / "records"
    save_after_first_of_two_rollouts(tmp_path / "other", record=records)  # two files
    PPO(ThreeStepEnv, QUICK).save_checkpoint(tmp_path / "checkpoint")

    algo = PPO.restore(tmp_path / "checkpoint", ThreeStepEnv, record=records)

    assert algo.state()["recorded"] == 2


# --- restore --------------------------------------------------------------------------------------


def test_restored_run_has_counts_of_checkpoint(tmp_path):
    algo = PPO(ThreeStepEnv, QUICK)
    algo.train()
    algo.save_checkpoint(tmp_path)

    restored = PPO.restore(tmp_path, ThreeStepEnv)

    assert restored.steps == 8  # two environments, four steps each
    assert restored.iterations == 1
    assert restored.new_episode_reasons == {}  # all environments resume their episodes


def test_damaged_checkpoint_is_named_and_environments_are_closed(tmp_path):
    algo = PPO(ThreeStepEnv, QUICK)
    state = algo.state()
    state["collector"]["returns"] = np.zeros(9)  # but there are 2 environments
    checkpoints.write(tmp_path, algo.policy, state)
    # Count the environments of `restore` alone.
    ThreeStepEnv.made = 0
    ThreeStepEnv.closed = 0

    with pytest.raises(SavedPolicyError, match="the saved state does not fit") as caught:
        PPO.restore(tmp_path, ThreeStepEnv)

    assert "ValueError: collector/returns: expected" in str(caught.value)
    assert ThreeStepEnv.made > 0
    assert ThreeStepEnv.closed == ThreeStepEnv.made


def test_checkpoint_remembers_id_of_environment(tmp_path):
    PPO("CartPole-v1", QUICK).save_checkpoint(tmp_path)

    assert PPO.restore(tmp_path).state()["env"] == "CartPole-v1"


def test_state_has_no_id_for_environment_class():
    assert PPO(ThreeStepEnv, QUICK).state()["env"] is None


class UnknownBox(spaces.Box):
    """A space that a saved policy cannot describe."""


class SizedEnv(ThreeStepEnv):
    """Has an `UnknownBox` of the size in its config as observation space."""

    def __init__(self, config):
        super().__init__()
        self.observation_space = UnknownBox(-config["size"], config["size"], (2,))


def test_unknown_space_is_read_from_env_with_saved_config(tmp_path):
    PPO(SizedEnv, {**QUICK, "env_config": {"size": 7}}).save_checkpoint(tmp_path)

    algo = PPO.restore(tmp_path, SizedEnv)

    assert algo.policy.observation_space == UnknownBox(-7, 7, (2,))


# --- set_state ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frozen_key", "saved_key", "was_frozen", "is_frozen"),
    [
        pytest.param("auto", "auto", True, True, id="was-frozen"),
        pytest.param("always", "always", False, False, id="was-not-frozen"),
        pytest.param("always", "always", None, True, id="was-undecided"),
        pytest.param("auto", "never", True, False, id="was-never-now-auto"),
        pytest.param("always", "auto", False, True, id="was-auto-now-always"),
    ],
)
def test_run_stays_frozen_if_key_frozen_is_unchanged(frozen_key, saved_key, was_frozen, is_frozen):
    algo = PPO(ThreeStepEnv, {**QUICK, "frozen": frozen_key})
    algo.train()  # with "auto", so short a run is not frozen
    state = algo.state()
    state["frozen"] = was_frozen
    state["config"]["frozen"] = saved_key

    algo.set_state(state)

    assert isinstance(algo.acting, Frozen) is is_frozen


def test_environment_without_state_begins_new_episode():
    algo = PPO(ThreeStepEnv, QUICK)
    algo.train()  # 4 steps in episodes of 3: each environment is at step 1
    state = algo.state()
    assert state["collector"]["lengths"].tolist() == [1, 1]
    # A checkpoint says "why" of an environment that cannot resume its episode.
    state["environments"][1] = {"generator": {}, "why": "it has no state"}

    with pytest.warns(ResumeWarning, match="^1 of 2 environments cannot resume"):
        algo.set_state(state)

    assert algo.new_episode_reasons == {1: "it has no state"}
    assert algo.state()["collector"]["lengths"].tolist() == [1, 0]  # environment 1 begins anew
