"""A collector, step by step against a scripted vector environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlcatalog.errors import NonFiniteError
from rlcatalog_policy import Frozen, History, State
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_ppo.rollout import Collector
from rlcatalog_runs.seeds import SeedStream, derive_seed

#: Number of environments.
N = 3
OBS_SHAPE = (2, 4)  # neither axis of an observation is as long as the batch
MODES = {mode.name.lower(): mode for mode in AutoresetMode}
all_modes = pytest.mark.parametrize("mode", MODES)


def step(rewards, terminated_envs=(), truncated_envs=()):
    """Return a step for `ScriptedEnvs`, which names the environments whose episodes end."""
    return rewards, terminated_envs, truncated_envs


def observe(number):
    """Return an observation of each environment: `number + i / 10` everywhere in environment i."""
    return np.full((N, *OBS_SHAPE), number, np.float32) + np.arange(N).reshape(N, 1, 1) / 10


class ScriptedEnvs(VectorEnv):
    """Three environments that return the given steps, and record their resets.

    After step t they observe `observe(t)`, after reset k `observe(100 * k)`. The last observations
    of episodes that end at step t are those of `observe(50 + t)` in `infos["final_obs"]`.

    Args:
        mode: When environments are reset: `"next_step"`, `"same_step"` or `"disabled"`.
        steps: The steps (see `step`).
    """

    def __init__(self, mode, *steps):
        self.num_envs = N
        self.metadata = {"autoreset_mode": MODES[mode]}
        self.single_observation_space = spaces.Box(-99, 99, OBS_SHAPE)
        self.single_action_space = spaces.Discrete(2)
        self.steps = steps
        self.steps_taken = 0
        self.resets = []

    def reset(self, *, seed=None, options=None):
        self.resets.append({"seed": seed, "options": options})
        return observe(100 * len(self.resets)), {}

    def step(self, actions):
        rewards, terminated_envs, truncated_envs = self.steps[self.steps_taken]
        self.steps_taken += 1
        return (
            observe(self.steps_taken),
            np.asarray(rewards),
            np.isin(np.arange(N), terminated_envs),
            np.isin(np.arange(N), truncated_envs),
            {"final_obs": list(observe(50 + self.steps_taken))},
        )


class RecordingViews:
    """The views of a model that requests none; records the columns that it could have."""

    ahead = ()

    def __init__(self):
        self.columns = []

    def look_ahead(self, columns, done):
        self.columns.append(set(columns))
        return {}


class RecordingPolicy:
    """A policy without a model, which records its calls.

    The value of an observation is its first number. If there are masks, they allow everything
    right after the first reset, and nothing later.

    Args:
        has_masks: Whether the environments have masks.
        has_custom_loss: Whether its model overrides `custom_loss`.
    """

    memory = ()
    device = "cpu"
    action_codec = SimpleNamespace(scalar=True)

    def __init__(self, has_masks=False, has_custom_loss=False):
        self.has_masks = has_masks
        self.has_custom_loss = has_custom_loss
        self.views = RecordingViews()
        self.forget_calls()

    def forget_calls(self):
        self.filter_updates = []
        self.idle_rows = []
        self.restarted_rows = []
        self.previous_rewards = []
        self.value_calls = []

    def overrides(self, name):
        return self.has_custom_loss and name == "custom_loss"

    def preprocess(self, observed, update=False):
        self.filter_updates.append(update if isinstance(update, bool) else update.tolist())
        return np.array(observed)

    def action_mask(self, observed, idle=None):
        self.idle_rows.append(None if idle is None else idle.tolist())
        if not self.has_masks:
            return None
        return np.full((N, 2), np.asarray(observed)[0, 0, 0] > 99)

    def initial_state(self, n):
        return None

    def restart(self, state, rows):
        self.restarted_rows.append(rows.tolist())
        return state

    def act_encoded(self, encoded, state, *, prev_reward, mask):
        self.previous_rewards.append(prev_reward.tolist())
        zeros = np.zeros(N, np.float32)
        return SimpleNamespace(
            raw_action=zeros[:, None],
            logp=zeros,
            value=encoded[:, 0, 0],
            dist_inputs=zeros[:, None],
            state=None,
            action=zeros,
        )

    def values(self, encoded, state, *, prev_reward):
        assert len(encoded), "an empty batch"
        self.value_calls.append({"obs": encoded[:, 0, 0], "prev_reward": prev_reward.tolist()})
        return encoded[:, 0, 0]


def make_collector(envs, policy=None, *, gamma=0.5, **options):
    return Collector(policy or RecordingPolicy(), envs, 7, gamma, **options)


def end_two_episodes_then_one(mode):
    """Return environments of four steps: two episodes end at the second step, one at the third."""
    return ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )


# --- rewards and episodes -------------------------------------------------------------------------


@all_modes
def test_rollout_has_the_rewards_and_ends_of_the_environments(mode):
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    rollout = make_collector(envs).collect(4)

    assert rollout.reward.tolist() == [[1, 2, 3], [1, 2, 3], [4, 5, 6], [1, 2, 3]]
    assert rollout.reward.dtype == np.float32
    assert rollout.done.tolist() == [
        [False, False, False],
        [True, True, False],
        [False, False, True],
        [False, False, False],
    ]


@all_modes
def test_policy_receives_the_rewards_of_the_previous_step(mode):
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    make_collector(envs, policy).collect(4)

    assert policy.previous_rewards == [[0, 0, 0], [1, 2, 3], [1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "rewards",
    [[1, 2, 3], [True, False, True], [3e38, -3e38, 0.0], np.float32([0.5, 1, 2])],
    ids=["int", "bool", "huge", "float32"],
)
def test_finite_rewards_become_float32(rewards):
    envs = ScriptedEnvs("disabled", step(rewards))

    rollout = make_collector(envs).collect(1)

    assert rollout.reward.dtype == np.float32
    np.testing.assert_array_equal(rollout.reward[0], np.asarray(rewards, np.float32))


@pytest.mark.parametrize(
    ("dtype", "reward"),
    [
        *((np.float64, reward) for reward in (np.nan, np.inf, -np.inf, 1e300)),
        *((object, reward) for reward in (np.nan, np.inf, -np.inf, 1e300)),
        (np.float32, np.nan),
        (np.float32, np.inf),
    ],
)
def test_reward_outside_finite_float32_is_an_error(dtype, reward):
    envs = ScriptedEnvs(
        "same_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[1]),
        step(rewards=np.array([1.0, reward, reward], dtype)),
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
    envs = ScriptedEnvs(mode)

    Collector(RecordingPolicy(), envs, seed=7, gamma=0.5)

    seed = derive_seed(7, SeedStream.ENVIRONMENTS)
    assert envs.resets == [{"seed": seed, "options": None}]


def test_collector_resets_ended_environments_in_mode_disabled():
    envs = ScriptedEnvs(
        "disabled",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
    )

    make_collector(envs).collect(3)

    first_reset, after_second_step, after_third_step = envs.resets
    assert first_reset["options"] is None
    assert after_second_step["options"]["reset_mask"].tolist() == [True, True, False]
    assert after_third_step["options"]["reset_mask"].tolist() == [False, False, True]


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_environments_reset_themselves_in_other_modes(mode):
    envs = end_two_episodes_then_one(mode)

    make_collector(envs).collect(4)

    assert len(envs.resets) == 1  # the first one


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_ended_episodes_are_counted(mode):
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    collector = make_collector(envs)

    rollout = collector.collect(4)

    assert rollout.idle is None
    assert collector.episodes.get_state() == {
        "returns": [1 + 1, 2 + 2, 3 + 3 + 6],
        "lengths": [2, 2, 3],
        "total": 3,
    }
    # The episodes in progress.
    state = collector.get_state()
    assert state["returns"].tolist() == [4 + 1, 5 + 2, 3]
    assert state["lengths"].tolist() == [2, 2, 1]


@all_modes
def test_policy_restarts_where_episodes_end(mode):
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    make_collector(envs, policy).collect(4)

    # The rows of environments 0 and 1, and later that of environment 2.
    assert policy.restarted_rows == [[True, True, False], [False, False, True]]


@pytest.mark.parametrize(("mode", "first_observation"), [("same_step", 2), ("disabled", 200)])
def test_next_episode_begins_with_its_first_observation(mode, first_observation):
    """In mode same_step, the second step returns it; in mode disabled, the second reset does."""
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0, 1, 2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    rollout = make_collector(envs).collect(3)

    np.testing.assert_array_equal(rollout.obs[0], observe(100))
    np.testing.assert_array_equal(rollout.obs[2], observe(first_observation))


def test_watchers_see_each_step():
    envs = ScriptedEnvs(
        "disabled",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[4.0, 5.0, 6.0]),
    )
    calls = []

    def watch(row):
        calls.append(("watch", row["reward"].tolist()))

    def watch_too(row):
        calls.append(("watch_too", row["reward"].tolist()))

    make_collector(envs).collect(2, [watch, watch_too])

    assert calls == [
        ("watch", [1, 2, 3]),
        ("watch_too", [1, 2, 3]),
        ("watch", [4, 5, 6]),
        ("watch_too", [4, 5, 6]),
    ]


# --- idle steps, which only begin an episode ------------------------------------------------------


def test_step_after_an_end_is_idle_in_mode_next_step():
    """It only resets the environment, whatever the action."""
    envs = ScriptedEnvs(
        "next_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    collector = make_collector(envs)

    rollout = collector.collect(4)

    assert rollout.idle.tolist() == [
        [False, False, False],
        [False, False, False],
        [True, True, False],
        [False, False, True],
    ]
    assert collector.get_state()["idle"].tolist() == [False, False, False]


def test_idle_steps_are_not_counted():
    envs = ScriptedEnvs(
        "next_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    collector = make_collector(envs)

    collector.collect(4)

    assert collector.episodes.get_state() == {
        "returns": [1 + 1, 2 + 2, 3 + 3 + 6],
        "lengths": [2, 2, 3],
        "total": 3,
    }
    # Environments 0 and 1 have been idle for a step since their end, and 2 for its only step.
    assert collector.get_state()["lengths"].tolist() == [1, 1, 0]


def test_filter_does_not_learn_from_last_observations():
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        "next_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    make_collector(envs, policy).collect(4)

    assert policy.filter_updates == [
        True,  # of the first reset
        True,
        False,  # encoded only for the value of the truncated episode
        [False, False, True],  # environments 0 and 1 have ended
        [True, True, False],  # environment 2 has ended
        True,
    ]


def test_idle_step_repeats_the_observation_before_it():
    """The last observation of an episode belongs to no step, because no action follows it."""
    envs = ScriptedEnvs(
        "next_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    obs = make_collector(envs).collect(4).obs

    # After the second step, environments 0 and 1 are idle, and 2 goes on.
    np.testing.assert_array_equal(obs[2, :2], obs[1, :2])
    np.testing.assert_array_equal(obs[2, 2], observe(2)[2])
    # After the third step, environment 2 is idle.
    np.testing.assert_array_equal(obs[3, 2], obs[2, 2])


# --- values ---------------------------------------------------------------------------------------


#: What environment 1 observes after its second step; in mode same_step, in `infos["final_obs"]`.
last_observations = pytest.mark.parametrize(
    ("mode", "last_observation"),
    [("same_step", 50 + 2 + 0.1), ("next_step", 2 + 0.1), ("disabled", 2 + 0.1)],
)


@last_observations
def test_truncated_episode_is_bootstrapped(mode, last_observation):
    """The value of this policy is the observation, discounted by 0.5."""
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    rollout = make_collector(envs, gamma=0.5).collect(4)

    # Only environment 1 is truncated without being terminated, at the second step.
    expected = np.zeros((4, 3))
    expected[1, 1] = 0.5 * last_observation
    np.testing.assert_allclose(rollout.bootstrap, expected, rtol=1e-6)


@last_observations
def test_only_truncated_episodes_are_valued(mode, last_observation):
    policy = RecordingPolicy()
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    make_collector(envs, policy).collect(4)

    of_truncated_episode, at_the_end = policy.value_calls
    assert of_truncated_episode["obs"].tolist() == [pytest.approx(last_observation)]
    assert of_truncated_episode["prev_reward"] == [2.0]
    assert len(at_the_end["obs"]) == 3  # all environments


@all_modes
def test_last_value_is_that_of_the_next_observations(mode):
    collector = make_collector(end_two_episodes_then_one(mode))

    rollout = collector.collect(4)

    # This policy's value of an observation is its first number.
    next_observations = collector.get_state()["encoded"]
    np.testing.assert_array_equal(rollout.last_value, next_observations[:, 0, 0])


def return_batch(policy, batch, others, episode):
    """Postprocessing function that changes nothing."""
    return batch


@pytest.mark.parametrize("terminated_envs", [[0], [0, 1, 2]])
@pytest.mark.parametrize("postprocess", [None, return_batch])
def test_terminated_episode_has_no_value_afterwards(terminated_envs, postprocess):
    """Not even if its last observation is encoded, because a postprocessing function reads it."""
    policy = RecordingPolicy()
    envs = ScriptedEnvs("disabled", step(rewards=[1.0, 1.0, 1.0], terminated_envs=terminated_envs))
    collector = make_collector(envs, policy, postprocess=postprocess)

    rollout = collector.collect(1)

    assert not rollout.bootstrap.any()
    assert len(policy.value_calls) == 1  # for the end of the rollout


@all_modes
def test_values_are_zero_if_they_are_not_wanted(mode):
    policy = RecordingPolicy()
    collector = make_collector(end_two_episodes_then_one(mode), policy, values=False)

    rollout = collector.collect(4)

    assert policy.value_calls == []
    assert not rollout.value.any()
    assert not rollout.bootstrap.any()
    assert not rollout.last_value.any()


@all_modes
def test_values_are_computed_by_default(mode):
    rollout = make_collector(end_two_episodes_then_one(mode)).collect(4)

    assert rollout.value.all()


# --- columns --------------------------------------------------------------------------------------


def test_rollout_without_masks_has_no_mask():
    rollout = make_collector(end_two_episodes_then_one("disabled")).collect(4)

    assert rollout.mask is None


def test_masks_are_a_column():
    policy = RecordingPolicy(has_masks=True)
    collector = make_collector(end_two_episodes_then_one("same_step"), policy)

    rollout = collector.collect(4)

    # This policy allows every action after a reset, and none later.
    assert rollout.mask.shape == (4, 3, 2)
    assert rollout.mask[0].all()
    assert not rollout.mask[1:].any()
    assert all(idle is None for idle in policy.idle_rows)


def test_masks_are_not_read_from_idle_rows():
    policy = RecordingPolicy(has_masks=True)
    envs = ScriptedEnvs(
        "next_step",
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
    )

    make_collector(envs, policy).collect(1)

    assert policy.idle_rows == [None, [True, True, False]]


def test_scaled_rewards_are_a_column():
    envs = ScriptedEnvs("same_step", step(rewards=[1.0, 2.0, 3.0]), step(rewards=[4.0, 5.0, 6.0]))
    clip_only = RewardScale(N, gamma=0.5, scaled=False, clip=2.5)

    rollout = make_collector(envs, scale=clip_only).collect(2)

    assert rollout.reward.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert rollout.scaled.tolist() == [[1, 2, 2.5], [2.5, 2.5, 2.5]]


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
def test_custom_loss_reads_last_observations(postprocess):
    """Also those of terminated episodes; the next episodes begin with other observations."""
    policy = RecordingPolicy(has_custom_loss=True)
    envs = ScriptedEnvs(
        "disabled",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )

    rollout = make_collector(envs, policy, postprocess=postprocess).collect(4)

    # After step t, environment i observes t + i / 10. At steps 2 and 3, environments are reset, for
    # the second and third time; the ones that go on observe 200 and 300 there.
    expected = [[1, 1.1, 1.2], [2, 2.1, 200.2], [300, 300.1, 3.2], [4, 4.1, 4.2]]
    np.testing.assert_allclose(rollout.columns["new_obs"][..., 0, 0], expected, rtol=1e-6)


def test_rollout_has_no_more_columns_by_default():
    policy = RecordingPolicy()

    rollout = make_collector(end_two_episodes_then_one("disabled"), policy).collect(4)

    assert rollout.columns == {}
    assert policy.views.columns == []


# --- states ---------------------------------------------------------------------------------------


def make_scaled_collector():
    """Return a collector that has masks and scales rewards, before its first step."""
    envs = end_two_episodes_then_one("same_step")
    policy = RecordingPolicy(has_masks=True)
    return make_collector(envs, policy, scale=RewardScale(N, gamma=0.5))


def test_state_is_restored_by_another_collector():
    collector = make_scaled_collector()
    collector.collect(4)
    state = collector.get_state()

    other = make_scaled_collector()
    other.set_state(state)

    restored = other.get_state()
    assert restored["episodes"] == state["episodes"]
    for name in ("returns", "lengths", "encoded", "mask", "rewards", "idle"):
        np.testing.assert_array_equal(restored[name], state[name], err_msg=name)
    np.testing.assert_array_equal(restored["scale"]["sums"], state["scale"]["sums"])


def test_state_without_memory_has_no_policy_state():
    collector = make_scaled_collector()
    collector.collect(4)

    assert collector.get_state()["state"] is None


def test_state_has_the_discounted_sums_of_rewards():
    envs = ScriptedEnvs(
        "same_step",
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0]),
        step(rewards=[4.0, 5.0, 6.0], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    collector = make_collector(envs, scale=RewardScale(N, gamma=0.5))

    collector.collect(3)

    # Since the ends of environments 0 and 2.
    expected = [4 * 0.5 + 1, 2 * 0.25 + 5 * 0.5 + 2, 3]
    assert collector.get_state()["scale"]["sums"].tolist() == expected


def test_state_is_a_copy():
    collector = make_scaled_collector()
    collector.collect(4)
    other = make_scaled_collector()
    state = collector.get_state()
    before = state["returns"].tolist()

    other.set_state(state)
    state["returns"] += 1

    assert other.get_state()["returns"].tolist() == before
    assert collector.get_state()["returns"].tolist() == before


def test_restored_episodes_are_still_limited_to_one_hundred():
    collector = make_scaled_collector()
    collector.collect(4)
    collector.episodes.returns.extend(range(98))

    collector.set_state(collector.get_state())

    assert collector.episodes.returns.maxlen == 100
    assert collector.episodes.lengths.maxlen == 100


def test_restored_collector_may_stop_scaling():
    scaled = make_scaled_collector()
    plain = make_collector(end_two_episodes_then_one("same_step"))

    plain.set_state({**scaled.get_state(), "mask": None})

    assert plain.get_state()["scale"] is None


@pytest.mark.parametrize("saved", ["as none", "not at all"])
def test_restored_collector_may_begin_to_scale(saved):
    state = make_collector(end_two_episodes_then_one("same_step")).get_state()
    scaled = make_collector(end_two_episodes_then_one("same_step"), scale=RewardScale(N, gamma=0.5))
    assert state["scale"] is None
    if saved == "not at all":  # as by earlier versions
        del state["scale"]

    scaled.set_state(state)

    assert scaled.get_state()["scale"]["sums"].tolist() == [0, 0, 0]


# --- new episodes in some environments ------------------------------------------------------------

some_rows = pytest.mark.parametrize(
    "rows",
    [np.array([True, False, True]), np.array([True, True, True])],
    ids=["some rows", "all rows"],
)


def test_begin_anew_resets_some_environments():
    envs = ScriptedEnvs("same_step")

    make_collector(envs).begin_anew(np.array([True, False, True]))

    last_reset = envs.resets[-1]
    assert last_reset["seed"] is None
    assert last_reset["options"]["reset_mask"].tolist() == [True, False, True]


def test_begin_anew_resets_all_environments_without_options():
    envs = ScriptedEnvs("same_step")

    make_collector(envs).begin_anew(np.array([True, True, True]))

    assert envs.resets[-1] == {"seed": None, "options": None}


@some_rows
def test_begin_anew_replaces_observations(rows):
    collector = make_collector(end_two_episodes_then_one("same_step"))
    collector.collect(4)

    collector.begin_anew(rows)

    # The second reset shows 200; environments that go on still show their observation of step 4.
    expected = np.where(rows.reshape(N, 1, 1), observe(200), observe(4))
    np.testing.assert_array_equal(collector.get_state()["encoded"], expected)


@some_rows
@pytest.mark.parametrize("name", ["returns", "lengths", "rewards"])
def test_begin_anew_clears_counts(rows, name):
    collector = make_collector(end_two_episodes_then_one("same_step"))
    collector.collect(4)
    before = collector.get_state()[name]
    assert before.all()

    collector.begin_anew(rows)

    np.testing.assert_array_equal(collector.get_state()[name], np.where(rows, 0, before))


@some_rows
def test_begin_anew_clears_sums_of_rewards(rows):
    collector = make_scaled_collector()
    collector.collect(4)
    before = collector.get_state()["scale"]["sums"]

    collector.begin_anew(rows)

    after = collector.get_state()["scale"]["sums"]
    np.testing.assert_array_equal(after, np.where(rows, 0, before))


@some_rows
def test_begin_anew_concerns_only_the_given_rows_of_the_policy(rows):
    policy = RecordingPolicy()
    collector = make_collector(ScriptedEnvs("same_step"), policy)
    policy.forget_calls()

    collector.begin_anew(rows)

    assert policy.filter_updates == [rows.tolist()]
    assert policy.idle_rows == [(~rows).tolist()]
    assert policy.restarted_rows == [rows.tolist()]


@some_rows
def test_begin_anew_replaces_masks(rows):
    collector = make_collector(
        end_two_episodes_then_one("same_step"), RecordingPolicy(has_masks=True)
    )
    collector.collect(4)

    collector.begin_anew(rows)

    # This policy allows both actions after a reset, and none later.
    both_actions = np.stack([rows, rows], axis=1)
    np.testing.assert_array_equal(collector.get_state()["mask"], both_actions)


def test_begin_anew_without_masks_adds_none():
    collector = make_collector(ScriptedEnvs("same_step"))

    collector.begin_anew(np.array([True, False, True]))

    assert collector.get_state()["mask"] is None


# --- memory ---------------------------------------------------------------------------------------


class CountingPolicy(RecordingPolicy):
    """A policy whose memory counts the steps of each episode, and shows it as the view `count`.

    Each step also adds 1 to the time and 2 to the window of its history, and 3 to its past.
    """

    memory = ("count",)
    config: ClassVar = {"max_seq_len": 2}

    def __init__(self):
        super().__init__()
        self.valued_counts = []

    def initial_state(self, n):
        zeros = np.zeros((n, 1))
        return State(
            memory=(zeros,),
            history=History({"obs": zeros}, np.zeros(n, int)),
            seen={},
            past=(zeros,),
        )

    def restart(self, state, rows):
        super().restart(state, rows)
        return state._replace(memory=(np.where(rows[:, None], 0, state.memory[0]),))

    def act_encoded(self, encoded, state, **arguments):
        step = super().act_encoded(encoded, state, **arguments)
        step.state = State(
            memory=(state.memory[0] + 1,),
            history=History({"obs": state.history.windows["obs"] + 2}, state.history.t + 1),
            seen={"count": state.memory[0]},
            past=(state.past[0] + 3,),
        )
        return step

    def values(self, encoded, state, **arguments):
        self.valued_counts.append(state.memory[0][:, 0].tolist())
        return super().values(encoded, state, **arguments)


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_sequences_begin_with_episodes_and_have_their_memory(mode):
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    policy = CountingPolicy()  # its sequences have at most two steps

    rollout = make_collector(envs, policy).collect(4)

    by_environment = rollout.starts.T.astype(int).tolist()
    assert by_environment == [[1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    # The memory is the number of steps so far: 2 in the second sequence of environment 2.
    assert rollout.memory[0][:, 0].tolist() == [0, 0, 0, 0, 0, 2, 0]


def test_sequences_begin_after_idle_steps():
    envs = ScriptedEnvs(
        "next_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    policy = CountingPolicy()  # its sequences have at most two steps

    rollout = make_collector(envs, policy).collect(4)

    # Environments 0 and 1 are idle at the third step, and 2 at the fourth.
    by_environment = rollout.starts.T.astype(int).tolist()
    assert by_environment == [[1, 0, 0, 1], [1, 0, 0, 1], [1, 0, 1, 0]]
    assert rollout.memory[0][:, 0].tolist() == [0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(
    ("mode", "counts_at_the_end"),
    [
        ("same_step", [2, 2, 1]),
        ("disabled", [2, 2, 1]),
        # The idle steps do not count.
        ("next_step", [1, 1, 0]),
    ],
)
def test_values_are_computed_with_the_memory_of_their_episodes(mode, counts_at_the_end):
    envs = ScriptedEnvs(
        mode,
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    policy = CountingPolicy()  # its memory counts the steps of an episode

    make_collector(envs, policy).collect(4)

    assert policy.valued_counts == [[2], counts_at_the_end]  # [2] for the truncated episode


@all_modes
def test_views_of_the_policy_are_stored(mode):
    rollout = make_collector(end_two_episodes_then_one(mode), CountingPolicy()).collect(4)

    # The view `count` is the number of steps before this one.
    assert rollout.views["count"][0, :, 0].tolist() == [0, 0, 0]
    assert rollout.views["count"][1, :, 0].tolist() == [1, 1, 1]


def test_rollout_without_memory_has_neither_views_nor_sequences():
    rollout = make_collector(end_two_episodes_then_one("same_step")).collect(4)

    assert rollout.views == {}
    assert rollout.starts is None
    assert rollout.memory == ()


def test_state_has_the_memory_of_the_policy():
    envs = ScriptedEnvs(
        "same_step",
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
    )
    # Its memory counts the steps of an episode. Each step also adds 1 to the time, 2 to the window
    # and 3 to the past.
    collector = make_collector(envs, CountingPolicy())

    collector.collect(4)

    state = collector.get_state()
    assert "views" not in state
    of_policy = state["state"]
    assert of_policy.keys() == {"memory", "windows", "t", "seen", "past"}
    assert of_policy["memory"][0][:, 0].tolist() == [2, 2, 1]  # steps since the last end
    assert of_policy["t"].tolist() == [4, 4, 4]
    assert of_policy["windows"]["obs"][:, 0].tolist() == [8, 8, 8]
    assert of_policy["past"][0][:, 0].tolist() == [12, 12, 12]


def test_memory_is_restored_by_another_collector():
    collector = make_collector(end_two_episodes_then_one("same_step"), CountingPolicy())
    collector.collect(4)
    state = collector.get_state()

    other = make_collector(end_two_episodes_then_one("same_step"), CountingPolicy())
    other.set_state(state)

    for name, part in other.get_state()["state"].items():
        np.testing.assert_equal(part, state["state"][name], err_msg=name)


def test_begin_anew_clears_the_memory_of_the_given_rows():
    collector = make_collector(
        ScriptedEnvs("same_step", step(rewards=[1.0, 2.0, 3.0])), CountingPolicy()
    )
    collector.collect(1)

    collector.begin_anew(np.array([True, False, False]))

    memory = collector.get_state()["state"]["memory"][0]
    assert memory[:, 0].tolist() == [0, 1, 1]  # the number of steps


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


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize(
    ("steps_of_config", "steps_of_run", "expected_steps"),
    [(None, 500, 500), (300, 500, 300), (300, None, 300), (None, None, None)],
)
def test_frozen_acting_is_decided_once_per_run(
    steps_of_config, steps_of_run, expected_steps, is_frozen
):
    """By the number of steps in the config or, if it has none, by that of the run."""
    questions = []

    def decide(total_steps, device):
        questions.append((total_steps, device))
        return is_frozen

    config = SimpleNamespace(total_steps=steps_of_config, collects_frozen=decide)
    collector = make_collector(ScriptedEnvs("disabled"), FreezablePolicy())
    assert collector.frozen is None

    collector.decide_frozen(config, steps_of_run)
    collector.decide_frozen(config, steps_of_run)

    assert questions == [(expected_steps, "cpu")]
    assert collector.frozen is is_frozen


def test_frozen_form_acts_until_it_is_thawed():
    policy = FreezablePolicy()
    collector = make_collector(ScriptedEnvs("disabled"), policy)  # its seed is 7
    assert collector.policy is policy

    collector.freeze(True)
    assert isinstance(collector.policy, Frozen)
    assert policy.frozen_with == {"count": 3, "seed": derive_seed(7, SeedStream.FROZEN)}

    collector.freeze(False)
    assert collector.policy is policy


@pytest.mark.parametrize(("is_frozen", "updates"), [(True, 1), (False, 0)])
def test_take_over_updates_the_frozen_form(is_frozen, updates):
    policy = FreezablePolicy()
    collector = make_collector(ScriptedEnvs("disabled"), policy)
    collector.freeze(is_frozen)

    collector.take_over()

    assert policy.updates == updates
