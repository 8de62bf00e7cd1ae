"""Optional columns of a rollout: sequences, columns for views of the future, added columns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError
from rlcatalog_ppo.rollout_columns import SequenceRecorder, TrajectoryColumns, added_columns
from rlcatalog_ppo.steps import EnvStep

# --- sequences ------------------------------------------------------------------------------------


def record_sequences(*, max_seq_len, done, idle=None, memory=None):
    """Return the sequences of a rollout.

    Args:
        max_seq_len: The longest sequence.
        done: Whether an episode ended at each step; a list for each environment.
        idle: Which steps only began an episode; by default none.
        memory: The number that an environment remembers before each step; by default zeros.
    """
    done = np.array(done, bool).T
    idle = np.zeros_like(done) if idle is None else np.array(idle, bool).T
    memory = np.zeros(done.shape) if memory is None else np.array(memory).T
    recorder = SequenceRecorder(max_seq_len, num_envs=done.shape[1])
    for t in range(len(done)):
        # A memory of two parts.
        part = memory[t][:, np.newaxis]
        recorder.add_step(memory=(part, -part), idle=idle[t], done=done[t])
    return recorder.sequences()


def test_sequence_begins_after_max_seq_len_steps():
    sequences = record_sequences(max_seq_len=2, done=[[False, False, False, False, False]])

    assert sequences.starts[:, 0].tolist() == [True, False, True, False, True]


def test_sequence_begins_with_an_episode():
    sequences = record_sequences(max_seq_len=3, done=[[False, True, False, False, False]])

    assert sequences.starts[:, 0].tolist() == [True, False, True, False, False]


def test_sequence_does_not_begin_with_an_idle_step():
    # The last step only begins an episode.
    sequences = record_sequences(
        max_seq_len=2,
        done=[[False, False, False, True, False]],
        idle=[[False, False, False, False, True]],
    )

    assert sequences.starts[:, 0].tolist() == [True, False, True, False, False]


def test_memory_of_sequences_is_that_before_their_first_steps():
    sequences = record_sequences(
        max_seq_len=2,
        done=[[False, False, False, False], [False, False, False, False]],
        memory=[[10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]],
    )

    # Both environments begin a sequence at steps 0 and 2; the first environment is listed first.
    # `record_sequences` makes a memory of two parts: these numbers, and their negatives.
    first_part, second_part = sequences.memory
    assert first_part[:, 0].tolist() == [10, 12, 20, 22]
    assert second_part[:, 0].tolist() == [-10, -12, -20, -22]


def test_memory_of_sequences_leaves_idle_steps_out():
    sequences = record_sequences(
        max_seq_len=2,
        done=[[False, True, False], [False, True, False]],
        idle=[[False, False, False], [False, False, True]],
        memory=[[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]],
    )

    assert sequences.memory[0][:, 0].tolist() == [10, 12, 20]


# --- columns for views of the future --------------------------------------------------------------


def select_columns(requested, *, all_columns=False):
    """Return the selection for a model whose training views request these columns."""
    views = SimpleNamespace(ahead=[SimpleNamespace(column=name) for name in requested])
    return TrajectoryColumns(SimpleNamespace(views=views), all_columns=all_columns)


def record_step(selection, *, has_state=True, final_obs=None):
    """Return the columns of a step in two environments: 1 terminates, and 0 is truncated.

    The next observations are 7 and 8. `t` is 5 and 9 after the step.
    """
    state = SimpleNamespace(history=SimpleNamespace(t=np.array([5, 9])))
    policy_step = SimpleNamespace(
        raw_action=np.array([[0], [0]]),
        logp=np.array([[1], [1]]),
        dist_inputs=np.array([[2], [2]]),
        value=np.array([[3], [3]]),
        state=state if has_state else None,
    )
    env_step = EnvStep(
        env_obs=None,
        original_reward=np.ones(2),
        reward=np.ones(2),
        terminated=np.array([False, True]),
        truncated=np.array([True, False]),
        done=np.array([True, True]),
        info={},
    )
    return selection.select(
        obs=np.zeros((2, 1)),
        policy_step=policy_step,
        env_step=env_step,
        next_obs=np.array([[7.0], [8.0]]),
        final_obs=final_obs,
    )


def test_only_requested_columns_are_stored():
    selection = select_columns(["rewards", "t", "truncateds"])

    columns = record_step(selection)

    assert selection.is_needed
    assert columns.keys() == {"rewards", "t", "truncateds"}
    assert columns["rewards"].tolist() == [1, 1]
    assert columns["t"].tolist() == [4, 8]  # before the step


def test_time_is_not_stored_without_a_state():
    assert record_step(select_columns(["t"]), has_state=False) == {}


def test_nothing_is_stored_by_default():
    selection = select_columns([])

    assert not selection.is_needed
    assert record_step(selection) == {}


def test_all_columns_can_be_recorded():
    selection = select_columns([], all_columns=True)

    columns = record_step(selection, final_obs=np.array([[-2.0], [-1.0]]))

    numbers = {name: column.reshape(-1).tolist() for name, column in columns.items()}
    assert numbers == {
        # The numbers that `record_step` gives to two environments.
        "obs": [0, 0],
        "actions": [0, 0],
        "rewards": [1, 1],
        "action_logp": [1, 1],
        "action_dist_inputs": [2, 2],
        "vf_preds": [3, 3],
        "t": [4, 8],
        "terminateds": [False, True],
        "truncateds": [True, False],
        # Both episodes end, so these are their last observations.
        "new_obs": [-2, -1],
    }


def test_new_observations_are_the_next_ones_without_last_ones():
    columns = record_step(select_columns([], all_columns=True), final_obs=None)

    assert columns["new_obs"].tolist() == [[7], [8]]


@pytest.mark.parametrize(
    ("requested", "all_columns", "needed"),
    [
        ([], False, False),
        (["rewards", "t"], False, False),
        (["new_obs"], False, True),
        ([], True, True),
        (["rewards"], True, True),
    ],
)
def test_last_observations_are_needed_for_new_observations(requested, all_columns, needed):
    assert select_columns(requested, all_columns=all_columns).needs_final_obs is needed


# --- columns that postprocessing adds -------------------------------------------------------------


def make_policy(*, scalar_actions=True):
    return SimpleNamespace(action_codec=SimpleNamespace(scalar=scalar_actions))


def add_columns(postprocess, *, policy=None, idle=None):
    """Return the columns that a function adds to four steps of two environments.

    The steps are numbered: 0, 2, 4, 6 in environment 0, and 1, 3, 5, 7 in environment 1. Episodes
    end with the steps 2 and 5.
    """
    columns = {
        "number": np.array([[0, 1], [2, 3], [4, 5], [6, 7]]),
        "actions": np.zeros((4, 2, 1)),
    }
    done = np.array([[False, False], [True, False], [False, True], [False, False]])
    return added_columns(
        postprocess, policy or make_policy(), columns=columns, done=done, idle=idle
    )


def count_steps(policy, batch, others, episode):
    """Add the trajectory's number of steps, twice for each step, and change what was given."""
    length = len(batch["number"])
    return {**batch, "steps": np.full((length, 2), length), "number": batch["number"] * 0}


def test_postprocessing_gets_the_steps_of_each_episode():
    trajectories = []

    def postprocess(policy, batch, others, episode):
        trajectories.append(batch["number"].tolist())
        return batch

    add_columns(postprocess)

    # Environment 0 has the steps 0, 2, 4 and 6, and environment 1 has 1, 3, 5 and 7. Episodes end
    # with the steps 2 and 5.
    assert trajectories == [[0, 2], [4, 6], [1, 3, 5], [7]]


@pytest.mark.parametrize(("scalar_actions", "axes"), [(True, 1), (False, 2)])
def test_postprocessing_gets_actions_as_they_were_drawn(scalar_actions, axes):
    axes_of_actions = []

    def postprocess(policy, batch, others, episode):
        axes_of_actions.append(batch["actions"].ndim)
        return batch

    add_columns(postprocess, policy=make_policy(scalar_actions=scalar_actions))

    assert axes_of_actions == [axes, axes, axes, axes]  # of four trajectories


@pytest.mark.parametrize("scalar_actions", [True, False])
def test_added_column_has_a_row_for_each_step(scalar_actions):
    policy = make_policy(scalar_actions=scalar_actions)

    added = add_columns(count_steps, policy=policy)

    # `count_steps` adds the trajectory's number of steps, twice for each step. Environment 0 has
    # trajectories of 2 and 2 steps, environment 1 of 3 and 1.
    assert added["steps"].shape == (4, 2, 2)
    assert added["steps"][..., 0].T.tolist() == [[2, 2, 2, 2], [3, 3, 3, 1]]
    assert added["steps"][..., 1].T.tolist() == [[2, 2, 2, 2], [3, 3, 3, 1]]


def test_given_columns_are_not_replaced():
    added = add_columns(count_steps)

    assert added.keys() == {"steps"}  # it also changes `number`, which was given


def test_idle_steps_belong_to_no_trajectory():
    trajectories = []

    def postprocess(policy, batch, others, episode):
        trajectories.append(batch["number"].tolist())
        return batch

    # Episodes end with the steps 2 and 5. The steps 4 and 7 after them are idle.
    idle = np.array([[False, False], [False, False], [True, False], [False, True]])
    add_columns(postprocess, idle=idle)

    assert trajectories == [[0, 2], [6], [1, 3, 5]]


def test_added_column_is_zero_for_idle_steps():
    # In environment 0 the third step is idle, in environment 1 the fourth.
    idle = np.array([[False, False], [False, False], [True, False], [False, True]])

    added = add_columns(count_steps, idle=idle)

    steps_of_trajectory = added["steps"][..., 0]
    assert steps_of_trajectory[:, 0].tolist() == [2, 2, 0, 1]
    assert steps_of_trajectory[:, 1].tolist() == [3, 3, 3, 0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must return the trajectory's columns, found NoneType"),
        ({"new": np.zeros(3)}, "a row for each of 2 steps; found shape (3,) in the column 'new'"),
        ({"new": 1.0}, "a row for each of 2 steps; found shape ()"),
        ({"new": np.zeros((1, 2))}, "a row for each of 2 steps; found shape (1, 2)"),
    ],
    ids=["nothing", "too many rows", "number", "too few rows"],
)
def test_postprocessing_that_returns_something_else_is_an_error(returned, message):
    def postprocess(policy, batch, others, episode):
        return returned

    columns = {"actions": np.zeros((2, 1, 1))}  # of two steps in one environment
    with pytest.raises(ModelContractError, match=r"^postprocess\(\) must return") as caught:
        added_columns(
            postprocess, make_policy(), columns=columns, done=np.zeros((2, 1), bool), idle=None
        )
    assert message in str(caught.value)
