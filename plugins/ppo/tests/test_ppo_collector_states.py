"""A collector's state, new episodes in some environments, and the memory of its policy."""

from __future__ import annotations

from typing import ClassVar

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

from rlcatalog_policy import History, State
from rlcatalog_ppo.reward_scale import RewardScale

all_modes = pytest.mark.parametrize("mode", MODES)


# --- states ---------------------------------------------------------------------------------------


def make_scaled_collector():
    """Return a collector that has masks and scales rewards, before its first step."""
    envs = end_two_episodes_then_one("same_step")
    policy = RecordingPolicy(has_masks=True)
    return make_collector(envs, policy, scale=RewardScale(3, gamma=0.5))


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


def test_state_has_discounted_sums_of_rewards():
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0]),
        step(rewards=[4.0, 5.0, 6.0], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset="same_step",
    )
    collector = make_collector(envs, scale=RewardScale(3, gamma=0.5))

    collector.collect(3)

    # Each step discounts the sum before it by 0.5.
    sums = collector.get_state()["scale"]["sums"]
    assert sums.tolist() == [
        4 * 0.5 + 1,  # since the end of environment 0 at the first step
        2 * 0.25 + 5 * 0.5 + 2,  # since the beginning
        3,  # since the end of environment 2 at the second step
    ]


def test_state_is_a_copy():
    collector = make_scaled_collector()
    collector.collect(4)
    returns = collector.get_state()["returns"].tolist()
    state = collector.get_state()
    other = make_scaled_collector()
    other.set_state(state)

    state["returns"] += 1

    assert other.get_state()["returns"].tolist() == returns
    assert collector.get_state()["returns"].tolist() == returns


def test_restored_episodes_are_still_limited_to_one_hundred():
    collector = make_scaled_collector()
    collector.collect(4)

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
    scaled = make_collector(end_two_episodes_then_one("same_step"), scale=RewardScale(3, gamma=0.5))
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
    envs = ScriptedEnvs(autoreset="same_step")

    make_collector(envs).begin_anew(np.array([True, False, True]))

    last_reset = envs.resets[-1]
    assert last_reset["seed"] is None
    assert last_reset["options"]["reset_mask"].tolist() == [True, False, True]


def test_begin_anew_resets_all_environments_without_options():
    envs = ScriptedEnvs(autoreset="same_step")

    make_collector(envs).begin_anew(np.array([True, True, True]))

    assert envs.resets[-1] == {"seed": None, "options": None}


@some_rows
def test_begin_anew_replaces_observations(rows):
    collector = make_collector(end_two_episodes_then_one("same_step"))
    collector.collect(4)

    collector.begin_anew(rows)

    # The second reset shows 200; environments that go on still show their observation of step 4.
    expected = np.where(rows.reshape(3, 1, 1), observe(200), observe(4))
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
    collector = make_collector(ScriptedEnvs(autoreset="same_step"), policy)
    policy.forget_calls()

    collector.begin_anew(rows)

    assert policy.filter_updates == [rows.tolist()]
    assert policy.idle_rows == [(~rows).tolist()]
    assert policy.restarted_rows == [rows.tolist()]


@some_rows
def test_begin_anew_replaces_masks(rows):
    # This policy allows both actions after a reset, and none later.
    policy = RecordingPolicy(has_masks=True)
    collector = make_collector(end_two_episodes_then_one("same_step"), policy)
    collector.collect(4)

    collector.begin_anew(rows)

    expected = np.stack([rows, rows], axis=1)  # a column for each of the two actions
    np.testing.assert_array_equal(collector.get_state()["mask"], expected)


def test_begin_anew_without_masks_adds_none():
    collector = make_collector(ScriptedEnvs(autoreset="same_step"))

    collector.begin_anew(np.array([True, False, True]))

    assert collector.get_state()["mask"] is None


# --- memory ---------------------------------------------------------------------------------------


class CountingPolicy(RecordingPolicy):
    """A policy whose memory counts the steps of each episode, and shows it as the view `count`.

    Its sequences have at most two steps.

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
            views={},
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
            views={"count": state.memory[0]},
            past=(state.past[0] + 3,),
        )
        return step

    def values(self, encoded, state, **arguments):
        self.valued_counts.append(state.memory[0][:, 0].tolist())
        return super().values(encoded, state, **arguments)


def test_sequence_is_cut_after_max_seq_len():
    five_steps = [step(rewards=[1.0, 2.0, 3.0])] * 5
    envs = ScriptedEnvs(*five_steps, autoreset="same_step")
    policy = CountingPolicy()
    assert policy.config["max_seq_len"] == 2

    rollout = make_collector(envs, policy).collect(5)

    for env in range(3):
        assert rollout.starts[:, env].tolist() == [True, False, True, False, True]
    # The memory of this policy is the number of steps so far. Each environment has three sequences,
    # which begin after 0, 2 and 4 steps.
    assert rollout.memory[0][:, 0].tolist() == [0, 2, 4, 0, 2, 4, 0, 2, 4]


@pytest.mark.parametrize(
    ("mode", "memories_at_the_end"),
    [
        ("same_step", [1, 1, 2]),
        ("disabled", [1, 1, 2]),
        ("next_step", [0, 0, 2]),  # the second step only resets environments 0 and 1
    ],
)
def test_values_are_computed_with_memory_of_their_episode(mode, memories_at_the_end):
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset=mode,
    )
    policy = CountingPolicy()  # its memory is the number of the episode's steps

    make_collector(envs, policy).collect(2)

    of_truncated_episode, at_the_end = policy.valued_counts
    assert of_truncated_episode == [1]
    assert at_the_end == memories_at_the_end


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


def test_state_has_memory_of_policy():
    envs = ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset="same_step",
    )
    collector = make_collector(envs, CountingPolicy())

    collector.collect(2)

    # Each step adds 1 to the memory, 1 to the time, 2 to the window and 3 to the past; the end of
    # an episode clears only the memory.
    state = collector.get_state()["state"]
    assert state.keys() == {"memory", "windows", "t", "seen", "past"}
    assert state["memory"][0][:, 0].tolist() == [1, 1, 2]
    assert state["t"].tolist() == [2, 2, 2]
    assert state["windows"]["obs"][:, 0].tolist() == [4, 4, 4]
    assert state["past"][0][:, 0].tolist() == [6, 6, 6]


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
        ScriptedEnvs(step(rewards=[1.0, 2.0, 3.0]), autoreset="same_step"), CountingPolicy()
    )
    collector.collect(1)

    collector.begin_anew(np.array([True, False, False]))

    memory = collector.get_state()["state"]["memory"][0]
    assert memory[:, 0].tolist() == [0, 1, 1]  # the number of the episode's steps
