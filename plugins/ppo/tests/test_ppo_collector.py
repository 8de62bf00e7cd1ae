"""A collector, step by step against a scripted vector environment."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scripted_envs import (
    MODES,
    RecordingPolicy,
    ScriptedEnvs,
    end_two_episodes_then_one,
    make_collector,
    observe,
    step,
)

from rlcatalog.errors import NonFiniteError
from rlcatalog_policy import Frozen
from rlcatalog_ppo.collector import Collector
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_runs.seeds import SeedStream, derive_seed

all_modes = pytest.mark.parametrize("mode", MODES)


# --- rewards and episodes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rewards",
    [[1, 2, 3], [True, False, True], [3e38, -3e38, 0.0], np.float32([0.5, 1, 2])],
    ids=["int", "bool", "huge", "float32"],
)
def test_finite_rewards_become_float32(rewards):
    envs = ScriptedEnvs(step(rewards), autoreset="disabled")

    rollout = make_collector(envs).collect(1)

    assert rollout.reward.dtype == np.float32
    np.testing.assert_array_equal(rollout.reward[0], np.asarray(rewards, np.float32))


@pytest.mark.parametrize("dtype", [np.float64, object])
@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf, 1e300])
def test_reward_outside_finite_float32_is_an_error(dtype, reward):
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[1]),
        step(rewards=np.array([1.0, reward, reward], dtype)),
        autoreset="same_step",
    )

    with pytest.raises(NonFiniteError) as caught:
        make_collector(envs).collect(3)

    # The first invalid reward is that of environment 1, whose second episode has just begun.
    assert caught.value.row == 1
    assert str(caught.value).startswith(
        f"environment 1 of 3, step 1 of its episode: the reward is {reward}, which is"
    )


@all_modes
def test_first_reset_has_a_seed_derived_from_the_run(mode):
    envs = ScriptedEnvs(autoreset=mode)

    Collector(RecordingPolicy(), envs, seed=7, gamma=0.5)

    seed = derive_seed(7, SeedStream.ENVIRONMENTS)
    assert envs.resets == [{"seed": seed, "options": None}]


def test_collector_resets_ended_environments_in_mode_disabled():
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[2]),
        autoreset="disabled",
    )

    make_collector(envs).collect(2)

    first_reset, after_first_step, after_second_step = envs.resets
    assert first_reset["options"] is None  # all environments
    assert after_first_step["options"]["reset_mask"].tolist() == [True, True, False]
    assert after_second_step["options"]["reset_mask"].tolist() == [False, False, True]


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_environments_reset_themselves_in_other_modes(mode):
    envs = end_two_episodes_then_one(mode)

    make_collector(envs).collect(4)

    assert len(envs.resets) == 1  # the first one


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_state_has_counts_of_episodes_in_progress(mode):
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0]),
        autoreset=mode,
    )
    collector = make_collector(envs)

    collector.collect(2)

    state = collector.get_state()
    # Environments 0 and 1 have begun a second episode, and 2 is still in its first one.
    assert state["returns"].tolist() == [4, 5, 3 + 6]
    assert state["lengths"].tolist() == [1, 1, 2]


@all_modes
def test_policy_restarts_where_episodes_end(mode):
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset=mode,
    )

    make_collector(envs, policy).collect(4)

    # Nothing restarts after the first and the last step.
    assert policy.restarted_rows == [[True, True, False], [False, False, True]]


def test_on_step_gets_a_record_of_each_step():
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0]), step(rewards=[4.0, 5.0, 6.0]), autoreset="disabled"
    )
    records = []

    make_collector(envs).collect(2, on_step=records.append)

    assert [record.reward.tolist() for record in records] == [[1, 2, 3], [4, 5, 6]]


# --- idle steps, which only begin an episode ------------------------------------------------------


def test_step_after_an_end_is_idle_in_mode_next_step():
    """It only resets the environment, whatever the action."""
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset="next_step",
    )

    rollout = make_collector(envs).collect(3)

    assert rollout.idle.tolist() == [
        [False, False, False],
        [True, True, False],
        [False, False, True],
    ]


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_steps_are_not_idle_in_other_modes(mode):
    rollout = make_collector(end_two_episodes_then_one(mode)).collect(4)

    assert rollout.idle is None


def test_reward_of_idle_step_counts_for_no_episode():
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0]),
        step(rewards=[50.0, 2.0, 3.0]),  # environment 0 is idle
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0, 1, 2]),
        autoreset="next_step",
    )
    scale = RewardScale(n=3, gamma=1.0)
    collector = make_collector(envs, policy, scale=scale)

    collector.collect(3)

    assert list(collector.episodes.returns) == [1, 1, 6, 9]
    assert list(collector.episodes.lengths) == [1, 1, 3, 3]
    assert policy.previous_rewards[2] == [0, 2, 3]
    # The sums of rewards so far, without the idle step's.
    _, variance, _ = scale.get_state()["moments"]
    np.testing.assert_allclose(variance, np.var([1, 2, 3, 4, 6, 1, 6, 9]), rtol=1e-3)


def test_idle_step_repeats_observation_before_it():
    """The last observation of an episode belongs to no step, because no action follows it."""
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset="next_step",
    )

    obs = make_collector(envs).collect(2).obs

    # In the second step, environments 0 and 1 are idle, and 2 goes on.
    np.testing.assert_array_equal(obs[1, 0], obs[0, 0])
    np.testing.assert_array_equal(obs[1, 1], obs[0, 1])
    np.testing.assert_array_equal(obs[1, 2], observe(1)[2])


# --- values ---------------------------------------------------------------------------------------


#: What environment 1 observes after its first step; in mode same_step, in `infos["final_obs"]`.
last_observations = pytest.mark.parametrize(
    ("mode", "last_observation"),
    [("same_step", 50 + 1 + 0.1), ("next_step", 1 + 0.1), ("disabled", 1 + 0.1)],
)


@last_observations
def test_only_truncated_episodes_are_valued(mode, last_observation):
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0, 2], truncated_envs=[1, 2]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset=mode,
    )

    make_collector(envs, policy).collect(2)

    of_truncated_episode, at_the_end = policy.value_calls
    assert of_truncated_episode["obs"].tolist() == [pytest.approx(last_observation)]
    assert of_truncated_episode["prev_reward"] == [2.0]  # of environment 1
    assert len(at_the_end["obs"]) == 3  # all environments, after the last step


def return_batch(policy, batch, others, episode):
    """Postprocessing function that changes nothing."""
    return batch


@pytest.mark.parametrize("terminated_envs", [[0], [0, 1, 2]])
@pytest.mark.parametrize("postprocess", [None, return_batch])
def test_terminated_episode_has_no_value_afterwards(terminated_envs, postprocess):
    """Not even if its last observation is encoded, because a postprocessing function reads it."""
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        step(rewards=[1.0, 1.0, 1.0], terminated_envs=terminated_envs), autoreset="disabled"
    )
    collector = make_collector(envs, policy, postprocess=postprocess)

    rollout = collector.collect(1)

    assert not rollout.bootstrap.any()
    assert len(policy.value_calls) == 1  # for the end of the rollout


@all_modes
def test_values_are_zero_if_they_are_not_wanted(mode):
    policy = RecordingPolicy()
    collector = make_collector(end_two_episodes_then_one(mode), policy, uses_values=False)

    rollout = collector.collect(4)

    assert policy.value_calls == []
    assert not rollout.value.any()
    assert not rollout.bootstrap.any()
    assert not rollout.last_value.any()


# --- columns --------------------------------------------------------------------------------------


def test_rollout_without_masks_has_no_mask():
    rollout = make_collector(end_two_episodes_then_one("disabled")).collect(4)

    assert rollout.mask is None


def test_rollout_has_masks_of_its_steps():
    # This policy allows both actions after a reset, and none later.
    policy = RecordingPolicy(has_masks=True)
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0]), step(rewards=[1.0, 2.0, 3.0]), autoreset="same_step"
    )

    rollout = make_collector(envs, policy).collect(2)

    assert rollout.mask.shape == (2, 3, 2)  # steps, environments, actions
    assert rollout.mask[0].all()
    assert not rollout.mask[1].any()


def test_masks_are_not_read_from_idle_rows():
    policy = RecordingPolicy(has_masks=True)
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        autoreset="next_step",
    )

    make_collector(envs, policy).collect(1)

    assert policy.idle_rows == [None, [True, True, False]]


def test_scaled_rewards_are_a_column():
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0]), step(rewards=[4.0, 5.0, 6.0]), autoreset="same_step"
    )
    clip_only = RewardScale(3, gamma=0.5, scaled=False, clip=2.5)

    rollout = make_collector(envs, scale=clip_only).collect(2)

    assert rollout.reward.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert rollout.scaled_reward.tolist() == [[1, 2, 2.5], [2.5, 2.5, 2.5]]


def double_rewards(policy, batch, others, episode):
    """Postprocessing function that adds the column `doubled`."""
    return {**batch, "doubled": batch["rewards"] * 2}


#: Columns of every batch, under RLlib's names.
USUAL_COLUMNS = {"obs", "actions", "rewards", "action_logp"}


#: Columns that only custom losses and postprocessing read.
MORE_COLUMNS = {"terminateds", "truncateds", "action_dist_inputs", "vf_preds", "new_obs"}


@pytest.mark.parametrize("has_custom_loss", [True, False])
def test_views_can_show_the_column_of_a_postprocessing_function(has_custom_loss):
    policy = RecordingPolicy(has_custom_loss=has_custom_loss)
    envs = end_two_episodes_then_one("disabled")

    make_collector(envs, policy, postprocess=double_rewards).collect(4)

    assert policy.views.columns == [{*USUAL_COLUMNS, *MORE_COLUMNS, "doubled"}]


def test_custom_loss_reads_columns_of_postprocessing():
    policy = RecordingPolicy(has_custom_loss=True)
    envs = end_two_episodes_then_one("disabled")

    rollout = make_collector(envs, policy, postprocess=double_rewards).collect(4)

    assert rollout.columns.keys() == {*MORE_COLUMNS, "dones", "doubled"}
    np.testing.assert_array_equal(rollout.columns["doubled"], rollout.reward * 2)


def test_columns_for_losses_are_not_stored_without_a_custom_loss():
    policy = RecordingPolicy(has_custom_loss=False)
    envs = end_two_episodes_then_one("disabled")

    rollout = make_collector(envs, policy, postprocess=double_rewards).collect(4)

    assert rollout.columns == {}


def test_custom_loss_reads_more_columns():
    policy = RecordingPolicy(has_custom_loss=True)

    rollout = make_collector(end_two_episodes_then_one("disabled"), policy).collect(4)

    assert rollout.columns.keys() == {*MORE_COLUMNS, "dones"}
    np.testing.assert_array_equal(rollout.columns["dones"], rollout.done)


def test_custom_loss_adds_columns_for_views():
    policy = RecordingPolicy(has_custom_loss=True)

    make_collector(end_two_episodes_then_one("disabled"), policy).collect(4)

    assert policy.views.columns == [{*USUAL_COLUMNS, *MORE_COLUMNS}]


@pytest.mark.parametrize("postprocess", [None, double_rewards], ids=["plain", "postprocess"])
def test_custom_loss_reads_last_observations_of_episodes(postprocess):
    policy = RecordingPolicy(has_custom_loss=True)
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset="disabled",
    )

    rollout = make_collector(envs, policy, postprocess=postprocess).collect(2)

    # After step t, environment i observes t + i / 10. That includes the ended environments 0 and 1:
    # what they observe after their reset is not the result of their last action.
    # All numbers of an observation are equal, so that the first one is enough.
    new_obs = rollout.columns["new_obs"][..., 0, 0]
    np.testing.assert_allclose(new_obs, [[1, 1.1, 1.2], [2, 2.1, 2.2]], rtol=1e-6)


def test_rollout_has_no_more_columns_by_default():
    policy = RecordingPolicy()

    rollout = make_collector(end_two_episodes_then_one("disabled"), policy).collect(4)

    assert rollout.columns == {}
    assert policy.views.columns == []


# --- a frozen policy ------------------------------------------------------------------------------


class FreezablePolicy(RecordingPolicy):
    """A policy whose frozen form counts its updates, and which records how it was frozen."""

    def __init__(self):
        super().__init__()
        self.updates = 0

    def freeze(self, count, seed):
        self.frozen_with = {"count": count, "seed": seed}
        policy = self

        class FrozenForm(Frozen):
            def update(self):
                policy.updates += 1

        return object.__new__(FrozenForm)  # a real one needs a model


@pytest.mark.parametrize(
    ("steps_of_config", "steps_of_run", "expected_steps"),
    [
        pytest.param(300, 500, 300, id="config"),
        pytest.param(None, 500, 500, id="run"),
        pytest.param(None, None, None, id="unknown"),
    ],
)
def test_freezing_is_decided_once_by_number_of_steps(steps_of_config, steps_of_run, expected_steps):
    calls = []

    def collects_frozen(total_steps, device):
        calls.append((total_steps, device))
        return True

    config = SimpleNamespace(total_steps=steps_of_config, collects_frozen=collects_frozen)
    collector = make_collector(ScriptedEnvs(autoreset="disabled"), FreezablePolicy())
    assert collector.acts_frozen is None  # undecided

    collector.decide_frozen(config, steps_of_run)
    collector.decide_frozen(config, steps_of_run)

    assert calls == [(expected_steps, "cpu")]  # only the first time
    assert collector.acts_frozen is True


def test_frozen_form_acts_until_it_is_thawed():
    policy = FreezablePolicy()
    envs = ScriptedEnvs(autoreset="disabled")  # three environments
    collector = Collector(policy, envs, seed=7, gamma=0.5)

    collector.act_frozen(True)
    assert isinstance(collector.policy, Frozen)
    assert policy.frozen_with == {"count": 3, "seed": derive_seed(7, SeedStream.FROZEN)}

    collector.act_frozen(False)
    assert collector.policy is policy


@pytest.mark.parametrize(("is_frozen", "updates"), [(True, 1), (False, 0)])
def test_update_of_frozen_weights_needs_a_frozen_form(is_frozen, updates):
    policy = FreezablePolicy()
    collector = make_collector(ScriptedEnvs(autoreset="disabled"), policy)
    collector.act_frozen(is_frozen)

    collector.update_frozen_weights()

    assert policy.updates == updates
