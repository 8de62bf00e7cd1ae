"""What makes up a rollout, each by itself: rows, advantages, counts, sequences, columns ahead, a
collector's state.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError, NonFiniteError
from rlcatalog_ppo.advantages import refuse_infinite
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.reward_scale import RewardScale, scale_of
from rlcatalog_ppo.rollout import Episodes, Rollout
from rlcatalog_ppo.rollout_columns import Ahead, Sequences, added_columns

T, N = 4, 2
rng = np.random.default_rng(0)


def rollout_of(**changes):
    """Return a rollout of four steps of two environments; the second begins an episode at its third
    step.
    """
    columns = {
        name: rng.normal(size=(T, N)).astype(np.float32) for name in ("logp", "value", "reward")
    }
    done = np.zeros((T, N), bool)
    done[1] = [False, True]
    return Rollout(
        **{
            "obs": rng.normal(size=(T, N, 3)),
            "raw_action": np.arange(T * N).reshape(T, N, 1),
            **columns,
            "done": done,
            "bootstrap": np.zeros((T, N), np.float32),
            "last_value": np.float32([0.5, -2]),
            **changes,
        }
    )


def returns_by_definition(rollout, gamma, lambda_):
    """Return advantages as sums of discounted errors (equation 16 of Schulman et al. 2016), term by
    term.
    """
    rewards = rollout.reward if rollout.scaled is None else rollout.scaled
    values, found = np.vstack([rollout.value, rollout.last_value]).astype(float), np.zeros((T, N))
    for i in range(N):
        for t in range(T):
            for k in range(t, T):
                following = 0.0 if rollout.done[k, i] else gamma * values[k + 1, i]
                error = rewards[k, i] + rollout.bootstrap[k, i] + following - values[k, i]
                found[t, i] += (gamma * lambda_) ** (k - t) * error
                if rollout.done[k, i]:
                    break
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scaled": np.float32(rng.normal(size=(T, N)))},
        {"bootstrap": np.float32([[0, 0], [0, 3], [0, 0], [0, 0]])},
    ],
)
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_advantages_and_targets_follow_their_definition(changes, lambda_):
    rollout = rollout_of(**changes)
    batch = rollout.batch(0.9, lambda_)
    expected = returns_by_definition(rollout, 0.9, lambda_)
    np.testing.assert_allclose(batch["advantage"], expected.T.reshape(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        batch["target"], (expected + rollout.value).T.reshape(-1), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(batch["reward"], rollout.reward.T.reshape(-1))
    np.testing.assert_array_equal(batch["raw_action"][:, 0], [0, 2, 4, 6, 1, 3, 5, 7])
    assert batch.keys() == {"obs", "raw_action", "logp", "reward", "advantage", "target"}


def test_optional_columns_are_in_the_batch_if_they_are_there():
    extra = {
        "dist_inputs": rng.normal(size=(T, N, 5)),
        "mask": np.ones((T, N, 2), bool),
        "views": {"prev": (np.arange(8).reshape(T, N),)},
        "columns": {"dones": np.zeros((T, N))},
    }
    rollout = rollout_of(**extra)
    assert rollout.batch(0.9, 0.9).keys() >= {"mask", "views", "columns"}
    assert "dist_inputs" not in rollout.batch(0.9, 0.9)
    batch = rollout.batch(0.9, 0.9, True)
    np.testing.assert_array_equal(
        batch["dist_inputs"], np.concatenate([extra["dist_inputs"][:, i] for i in range(N)])
    )
    assert batch["mask"].shape == (8, 2)
    assert batch["views"]["prev"][0].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_steps_that_only_begin_an_episode_are_left_out():
    idle = np.zeros((T, N), bool)
    idle[2, 1] = True
    starts = np.array([[True, True], [False, False], [True, False], [False, True]])
    rollout = rollout_of(idle=idle, starts=starts, memory=(np.arange(4.0),))
    assert rollout.steps == 7
    batch = rollout.batch(0.9, 0.9)
    assert batch["raw_action"][:, 0].tolist() == [0, 2, 4, 6, 1, 3, 7]
    assert batch["seq_lens"].tolist() == [2, 2, 2, 1]
    assert batch["seq_lens"].dtype == np.int32
    assert [part.tolist() for part in batch["state"]] == [[0, 1, 2, 3]]
    assert rollout_of(idle=np.arange(T * N).reshape(T, N) > 4).steps == 5
    whole = rollout_of()
    assert (whole.steps, len(whole.rows(whole.obs)), "seq_lens" in whole.batch(1, 1)) == (
        8,
        8,
        False,
    )


def test_rollout_that_is_not_finite_is_refused():
    reward = np.zeros((T, N), np.float32)
    reward[2, 1] = np.inf
    with pytest.raises(
        NonFiniteError, match=r"^environment 1 of 2, step 0 of the rollout: the advantage is "
    ):
        rollout_of(reward=reward).batch(0.9, 0.9)


@pytest.mark.parametrize(
    ("advantage", "value"), [(np.inf, 0.0), (0.0, np.nan), (3e38, 3e38), (-np.inf, np.inf)]
)
def test_first_number_that_is_not_finite_is_named(advantage, value):
    advantages, values, rewards = (
        np.zeros((3, 2), np.float32),
        np.zeros((3, 2), np.float32),
        np.zeros((3, 2)),
    )
    advantages[1, 1], values[1, 1], rewards[:, 1] = advantage, value, [2, 0.5, -7]
    advantages[2, 1] = np.inf
    with pytest.raises(NonFiniteError) as caught:
        refuse_infinite(advantages, rewards, values)
    assert caught.value.row == 1
    text = str(caught.value)
    assert text.startswith("environment 1 of 2, step 1 of the rollout: the advantage is ")
    assert "with a reward of 0.5 and" in text
    assert "largest reward there is 7." in text
    refuse_infinite(np.full((3, 2), 3e38, np.float32), rewards, np.zeros((3, 2), np.float32))


def test_episodes_are_counted_and_averaged():
    episodes = Episodes()
    assert episodes.figures() == {
        "episodes_total": 0,
        "episode_return_mean": None,
        "episode_reward_mean": None,
        "episode_len_mean": None,
    }
    episodes.add(1.5, 3)
    episodes.add(2.5, 8)
    figures = {
        "episodes_total": 2,
        "episode_return_mean": 2.0,
        "episode_reward_mean": 2.0,
        "episode_len_mean": 5.5,
    }
    assert episodes.figures() == figures
    assert episodes.get_state() == {"returns": [1.5, 2.5], "lengths": [3, 8], "total": 2}


# --- scaled rewards -------------------------------------------------------------------------------


def test_scale_is_the_deviation_of_all_sums_beside_a_small_prior():
    """In truth: mean and variance of all sums at once, with a prior of mean 0, variance 1 and
    weight 1e-4.
    """
    scale, sums, seen = RewardScale(3, 0.5), np.zeros(3), []
    assert scale.scaled
    never, idle = np.zeros(3, bool), np.array([False, True, False])
    for t in range(6):
        rewards, unused = rng.normal(2, 5, 3), idle if t == 2 else never
        ended = np.array([t == 3, False, False])
        sums = 0.5 * sums + rewards
        seen.extend(sums[~unused])
        weight = len(seen) + 1e-4
        mean, square = np.sum(seen) / weight, (1e-4 + np.sum(np.square(seen))) / weight
        found = scale(rewards, ended, unused)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, rewards / np.sqrt(square - mean**2 + 1e-8), rtol=1e-6)
        np.testing.assert_allclose(
            scale.get_state()["moments"], [mean, square - mean**2, weight], rtol=1e-9
        )
        sums[ended] = 0
        np.testing.assert_allclose(scale.get_state()["sums"], sums)
    before = scale.get_state()
    scale(np.ones(3), never, ~never)  # every environment only begins an episode
    np.testing.assert_array_equal(scale.get_state()["moments"], before["moments"])
    scale.begin_anew(np.array([True, False, True]))
    assert (scale.get_state()["sums"] == 0).tolist() == [True, False, True]


def test_rewards_that_hardly_differ_are_not_blown_up():
    scale = RewardScale(2, 0.0)
    scale.set_state({"moments": np.array([0.0, 0.0, 1e12]), "sums": np.zeros(2)})
    found = scale(np.array([1e-6, -1e-6]), np.zeros(2, bool), np.zeros(2, bool))
    np.testing.assert_allclose(found, [0.01, -0.01], rtol=1e-3)


def test_rewards_are_clipped_after_they_were_scaled():
    never, rewards = np.zeros(2, bool), np.array([300.0, -0.25])
    np.testing.assert_array_equal(
        RewardScale(2, 0.9, False, 2.0)(rewards, never, never), np.float32([2, -0.25])
    )
    np.testing.assert_array_equal(
        RewardScale(2, 0.9, False, 2.0)(-rewards, never, never), np.float32([-2, 0.25])
    )
    np.testing.assert_array_equal(
        RewardScale(2, 0.9, False)(rewards, never, never), rewards.astype(np.float32)
    )
    both = RewardScale(2, 0.9, clip=0.5)(rewards, never, never)
    alone = RewardScale(2, 0.9)(rewards, never, never)
    assert (both[0], both[1]) == (0.5, alone[1])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"reward_scale": True}, (True, None)),
        ({"reward_clip": 2.0}, (False, 2.0)),
        ({"reward_scale": True, "reward_clip": 2.0}, (True, 2.0)),
    ],
)
def test_rewards_are_scaled_as_the_config_says(keys, expected):
    scale = scale_of(PPOConfig(num_envs=3, gamma=0.5, **keys))
    assert (None if scale is None else (scale.scaled, scale.clip)) == expected
    if scale is not None:
        assert (scale.gamma, scale.get_state()["sums"].tolist()) == (0.5, [0, 0, 0])


# --- sequences and columns ahead ------------------------------------------------------------------


def test_sequences_begin_with_episodes_and_after_their_longest_length():
    sequences, memory = Sequences(SimpleNamespace(config={"max_seq_len": 2}), 2), []
    ends = [(False, False), (True, False), (False, False), (False, True), (False, False)]
    idle = [(False, False)] * 4 + [(False, True)]
    for t in range(5):
        memory.append(np.array([[10.0 + t], [20.0 + t]]))
        sequences.note(SimpleNamespace(memory=(memory[t], -memory[t])), np.array(idle[t]))
        sequences.step(np.array(ends[t]) | np.array(idle[t]))
    found = sequences.arrays()
    # The first ends after its second step; the second after its fourth, and its fifth only begins
    # an episode.
    assert found["starts"].T.tolist() == [
        [True, False, True, False, True],
        [True, False, True, False, False],
    ]
    assert found["memory"][0][:, 0].tolist() == [10, 12, 14, 20, 22]
    np.testing.assert_array_equal(found["memory"][1], -found["memory"][0])


def test_sequence_is_cut_in_the_middle_of_an_episode_alone():
    sequences, starts = Sequences(SimpleNamespace(config={"max_seq_len": 3}), 1), []
    for t in range(8):
        sequences.note(SimpleNamespace(memory=(np.zeros((1, 1)),)), np.zeros(1, bool))
        sequences.step(np.array([t == 4]))
    starts = sequences.arrays()["starts"][:, 0]
    assert np.flatnonzero(starts).tolist() == [0, 3, 5]


def columns_of(requested, everything, state=True, last=None):
    views = SimpleNamespace(ahead=[SimpleNamespace(column=name) for name in requested])
    ahead = Ahead(SimpleNamespace(views=views), everything)
    named = {
        name: np.full((2, 1), i)
        for i, name in enumerate(("raw_action", "logp", "dist_inputs", "value"))
    }
    step = SimpleNamespace(
        **named,
        state=SimpleNamespace(history=SimpleNamespace(t=np.array([5, 9]))) if state else None,
    )
    row = {"obs": np.zeros((2, 1)), "reward": np.ones(2)}
    encoded, ends = np.array([[7.0], [8.0]]), (np.array([False, True]), np.array([True, False]))
    return ahead, ahead.row(row, step, *ends, encoded, last)


def test_only_the_columns_asked_for_are_stored():
    ahead, found = columns_of(["rewards", "t", "truncateds"], False)
    assert (bool(ahead), ahead.last_obs) == (True, False)
    assert found.keys() == {"rewards", "t", "truncateds"}
    assert (found["rewards"].tolist(), found["t"].tolist()) == ([1, 1], [4, 8])
    assert columns_of(["t"], False, state=False)[1] == {}
    nothing, found = columns_of([], False)
    assert (bool(nothing), nothing.last_obs, found) == (False, False, {})
    assert columns_of(["new_obs"], False)[0].last_obs


@pytest.mark.parametrize("requested", [[], ["rewards"]])
def test_all_columns_are_stored_for_a_loss_or_postprocessing(requested):
    ahead, found = columns_of(requested, True, last=np.array([[-2.0], [-1.0]]))
    assert (bool(ahead), ahead.last_obs) == (True, True)
    assert {name: column.reshape(-1).tolist() for name, column in found.items()} == {
        "obs": [0, 0],
        "actions": [0, 0],
        "rewards": [1, 1],
        "t": [4, 8],
        "terminateds": [False, True],
        "truncateds": [True, False],
        "action_logp": [1, 1],
        "action_dist_inputs": [2, 2],
        "vf_preds": [3, 3],
        "new_obs": [-2, -1],
    }
    # No last observation is known.
    assert columns_of(requested, True)[1]["new_obs"].tolist() == [[7], [8]]


DONE = np.array([[False, False], [True, False], [False, True], [False, False]])


def doubled(policy, batch, others, episode):
    return {**batch, "steps": np.full((len(batch["x"]), 2), len(batch["x"])), "x": batch["x"] * 0}


@pytest.mark.parametrize("scalar", [True, False])
def test_added_columns_have_a_row_for_each_step_and_zeros_for_idle_ones(scalar):
    policy = SimpleNamespace(action_codec=SimpleNamespace(scalar=scalar))
    seen = []

    def noted(policy, batch, others, episode):
        seen.append((batch["x"].tolist(), batch["actions"].ndim, others, episode))
        return doubled(policy, batch, others, episode)

    columns = {"x": np.arange(8).reshape(4, 2), "actions": np.zeros((4, 2, 1))}
    found = added_columns(noted, policy, columns, DONE, None)
    assert found.keys() == {"steps"}  # what was given is not replaced
    assert found["steps"][..., 0].T.tolist() == [[2, 2, 2, 2], [3, 3, 3, 1]]
    assert [rows for rows, *_ in seen] == [[0, 2], [4, 6], [1, 3, 5], [7]]
    assert {tuple(map(str, rest)) for _, *rest in seen} == {("1" if scalar else "2", "{}", "None")}
    idle = np.zeros((4, 2), bool)
    idle[2, 0] = idle[3, 1] = True
    seen.clear()
    found = added_columns(noted, policy, columns, DONE, idle)
    assert found["steps"][..., 1].T.tolist() == [[2, 2, 0, 1], [3, 3, 3, 0]]
    assert [rows for rows, *_ in seen] == [[0, 2], [6], [1, 3, 5]]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"^postprocess\(\) must return the trajectory's columns, found NoneType"),
        (
            {"new": np.zeros(3)},
            r"^postprocess\(\) must return a row for each of 2 steps; found shape \(3,\).*'new'",
        ),
        ({"new": 1.0}, r"must return a row for each of 2 steps; found shape \(\)"),
        ({"new": np.zeros((1, 2))}, r"must return a row for each of 2 steps; found shape \(1, 2\)"),
    ],
)
def test_a_postprocessing_step_that_returns_something_else_is_named(returned, message):
    def postprocess(*arguments):
        return returned

    policy = SimpleNamespace(action_codec=SimpleNamespace(scalar=True))
    with pytest.raises(ModelContractError, match=message):
        added_columns(
            postprocess, policy, {"actions": np.zeros((2, 1, 1))}, np.zeros((2, 1), bool), None
        )
