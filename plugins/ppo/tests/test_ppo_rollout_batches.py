"""A rollout as rows for training: advantages, optional columns, idle steps and sequences."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.errors import NonFiniteError
from rlcatalog_ppo.advantages import check_finite, training_batch
from rlcatalog_ppo.episodes import Episodes
from rlcatalog_ppo.rollout import Rollout

#: Four steps of two environments.
T, N = 4, 2
rng = np.random.default_rng(0)


def draw_numbers(*shape):
    return rng.normal(size=shape).astype(np.float32)


def make_rollout(**columns):
    """Return a rollout of four steps of two environments; environment 1 ends at its second step.

    Raw actions are numbered: 0 and 1 are those of the first step, 2 and 3 of the second.
    """
    done = np.zeros((T, N), bool)
    done[1, 1] = True
    usual = {
        "obs": draw_numbers(T, N, 3),
        "raw_action": np.arange(T * N).reshape(T, N, 1),
        "logp": draw_numbers(T, N),
        "value": draw_numbers(T, N),
        "reward": draw_numbers(T, N),
        "done": done,
        "bootstrap": np.zeros((T, N), np.float32),
        "last_value": np.float32([0.5, -2]),
    }
    return Rollout(**{**usual, **columns})


def sum_discounted_errors(rollout, gamma, lambda_):
    """Return advantages term by term (Schulman et al. 2016, equation 16)."""
    rewards = rollout.reward if rollout.scaled_reward is None else rollout.scaled_reward
    values = np.vstack([rollout.value, rollout.last_value]).astype(float)
    advantages = np.zeros((T, N))
    for i in range(N):
        for t in range(T):
            for k in range(t, T):
                next_value = 0.0 if rollout.done[k, i] else gamma * values[k + 1, i]
                error = rewards[k, i] + rollout.bootstrap[k, i] + next_value - values[k, i]
                advantages[t, i] += (gamma * lambda_) ** (k - t) * error
                if rollout.done[k, i]:
                    break
    return advantages


def flatten(column):
    """Return a column `[T, N]` as rows, one environment after another."""
    return column.T.reshape(-1)


# --- advantages -----------------------------------------------------------------------------------

changed_columns = pytest.mark.parametrize(
    "changed_columns",
    [
        {},
        {"scaled_reward": draw_numbers(T, N)},
        {"bootstrap": np.float32([[0, 0], [0, 3], [0, 0], [0, 0]])},
    ],
    ids=["plain", "scaled rewards", "bootstrap"],
)


@changed_columns
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_advantages_are_discounted_sums_of_errors(changed_columns, lambda_):
    rollout = make_rollout(**changed_columns)

    batch = training_batch(rollout, gamma=0.9, lambda_=lambda_)

    expected = sum_discounted_errors(rollout, gamma=0.9, lambda_=lambda_)
    np.testing.assert_allclose(batch["advantage"], flatten(expected), rtol=1e-5, atol=1e-6)


def test_targets_are_advantages_plus_values():
    rollout = make_rollout()

    batch = training_batch(rollout, gamma=0.9, lambda_=0.7)

    expected = batch["advantage"] + flatten(rollout.value)
    np.testing.assert_allclose(batch["target"], expected, rtol=1e-5, atol=1e-6)


def test_infinite_advantage_in_a_batch_is_an_error():
    reward = np.zeros((4, 2), np.float32)
    reward[2, 1] = np.inf
    rollout = make_rollout(reward=reward, done=np.zeros((4, 2), bool))

    # The infinite reward at step 2 makes the advantages of the steps before it infinite as well.
    message = "^environment 1 of 2, step 0 of the rollout: the advantage is "
    with pytest.raises(NonFiniteError, match=message):
        training_batch(rollout, gamma=0.9, lambda_=0.9)


@pytest.mark.parametrize(
    ("advantage", "value"),
    [(np.inf, 0.0), (0.0, np.nan), (3e38, 3e38), (-np.inf, np.inf)],
    ids=["infinite advantage", "NaN value", "infinite sum", "NaN sum"],
)
def test_first_step_that_is_not_finite_is_named(advantage, value):
    # Three steps of one environment; the last two are not finite.
    advantages = np.float32([[0], [advantage], [np.inf]])
    values = np.float32([[0], [value], [0]])
    rewards = np.array([[2.0], [0.5], [-7.0]])

    with pytest.raises(NonFiniteError) as caught:
        check_finite(advantages, rewards=rewards, values=values)

    message = str(caught.value)
    assert message.startswith("environment 0 of 1, step 1 of the rollout: the advantage is ")
    assert "with a reward of 0.5 and" in message
    assert "largest reward there is 7." in message  # that of -7, without its sign


def test_error_of_infinite_advantages_has_the_environment():
    advantages = np.float32([[0, 0, np.inf]])
    zeros = np.zeros((1, 3), np.float32)

    with pytest.raises(NonFiniteError, match="environment 2 of 3") as caught:
        check_finite(advantages, rewards=zeros, values=zeros)

    assert caught.value.row == 2


def test_large_finite_advantages_are_accepted():
    zeros = np.zeros((3, 2), np.float32)

    check_finite(advantages=np.full((3, 2), 3e38, np.float32), rewards=zeros, values=zeros)


# --- columns --------------------------------------------------------------------------------------


def test_batch_has_the_columns_that_every_loss_reads():
    batch = training_batch(make_rollout(), gamma=0.9, lambda_=0.9)

    assert batch.keys() == {"obs", "raw_action", "logp", "reward", "advantage", "target"}


def test_batch_lists_one_environment_after_another():
    numbers = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])  # 4 steps of 2 environments
    rollout = make_rollout(raw_action=numbers[..., np.newaxis])

    batch = training_batch(rollout, gamma=0.9, lambda_=0.9)

    assert rollout.steps == 8
    assert batch["raw_action"][:, 0].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    np.testing.assert_array_equal(batch["reward"], flatten(rollout.reward))


def test_batch_has_the_masks_of_the_rollout():
    batch = training_batch(make_rollout(mask=np.ones((T, N, 2), bool)), gamma=0.9, lambda_=0.9)

    assert batch["mask"].shape == (8, 2)  # 4 steps of 2 environments


def test_batch_has_the_views_of_the_rollout():
    numbers = np.arange(8).reshape(T, N)

    batch = training_batch(make_rollout(views={"prev": (numbers,)}), gamma=0.9, lambda_=0.9)

    assert batch["views"]["prev"][0].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_batch_has_the_columns_for_custom_losses():
    batch = training_batch(
        make_rollout(columns={"dones": np.zeros((T, N))}), gamma=0.9, lambda_=0.9
    )

    assert batch["columns"]["dones"].shape == (8,)


def test_batch_has_distribution_inputs_only_if_asked():
    dist_inputs = draw_numbers(T, N, 5)
    rollout = make_rollout(dist_inputs=dist_inputs)

    without = training_batch(rollout, gamma=0.9, lambda_=0.9)
    batch = training_batch(rollout, gamma=0.9, lambda_=0.9, dist_inputs=True)

    assert "dist_inputs" not in without
    expected = np.concatenate([dist_inputs[:, 0], dist_inputs[:, 1]])
    np.testing.assert_array_equal(batch["dist_inputs"], expected)


# --- idle steps and sequences ---------------------------------------------------------------------


def test_batch_leaves_idle_steps_out():
    numbers = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])  # 4 steps of 2 environments
    rollout = make_rollout(raw_action=numbers[..., np.newaxis], idle=numbers == 5)

    batch = training_batch(rollout, gamma=0.9, lambda_=0.9)

    assert rollout.steps == 7
    # One environment after the other.
    assert batch["raw_action"][:, 0].tolist() == [0, 2, 4, 6, 1, 3, 7]


def test_batch_has_sequence_lengths_and_initial_memory():
    # Four steps of two environments, which begin two sequences each.
    starts = np.array([[True, True], [False, False], [True, False], [False, True]])
    idle = np.array([[False, False], [False, False], [False, True], [False, False]])
    memory_of_sequences = np.array([0.0, 1.0, 2.0, 3.0])
    rollout = make_rollout(starts=starts, idle=idle, memory=(memory_of_sequences,))

    batch = training_batch(rollout, gamma=0.9, lambda_=0.9)

    # The idle step is in no sequence, so environment 1 has sequences of 2 steps and of 1.
    assert batch["seq_lens"].tolist() == [2, 2, 2, 1]
    assert batch["seq_lens"].dtype == np.int32
    assert [part.tolist() for part in batch["state"]] == [[0, 1, 2, 3]]


def test_batch_without_memory_has_no_sequences():
    assert "seq_lens" not in training_batch(make_rollout(), gamma=0.9, lambda_=0.9)


# --- figures of episodes --------------------------------------------------------------------------


def test_episode_figures_are_none_before_the_first_end():
    assert Episodes().metrics() == {
        "episodes_total": 0,
        "episode_return_mean": None,
        "episode_reward_mean": None,
        "episode_len_mean": None,
    }


def test_episode_figures_are_means():
    episodes = Episodes()

    episodes.add(episode_return=1.5, length=3)
    episodes.add(episode_return=2.5, length=8)

    assert episodes.metrics() == {
        "episodes_total": 2,
        "episode_return_mean": 2.0,
        "episode_reward_mean": 2.0,  # the same under its name in RLlib
        "episode_len_mean": 5.5,
    }
    assert episodes.get_state() == {"returns": [1.5, 2.5], "lengths": [3, 8], "total": 2}
