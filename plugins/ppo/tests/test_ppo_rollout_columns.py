"""Optional columns of a rollout: sequences, columns for views of the future, added columns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import ModelContractError
from rlcatalog_ppo.rollout_columns import Ahead, Sequences, added_columns

# --- sequences ------------------------------------------------------------------------------------


def record_sequences(*, max_seq_len, ended, idle=None, memory=None):
    """Return `starts` and `memory` of the sequences of a rollout.

    Args:
        max_seq_len: The longest sequence.
        ended: Whether an episode ended at each step; a list for each environment.
        idle: Which steps only began an episode; by default none.
        memory: The number that an environment remembers before each step; by default zeros.
    """
    ended = np.array(ended, bool).T
    idle = np.zeros_like(ended) if idle is None else np.array(idle, bool).T
    memory = np.zeros(ended.shape) if memory is None else np.array(memory).T
    policy = SimpleNamespace(config={"max_seq_len": max_seq_len})
    sequences = Sequences(policy, ended.shape[1])
    for t in range(len(ended)):
        # A memory of two parts.
        part = memory[t][:, np.newaxis]
        sequences.note(SimpleNamespace(memory=(part, -part)), idle[t])
        sequences.step(ended[t] | idle[t])
    return sequences.arrays()


def test_sequence_begins_after_max_seq_len_steps():
    columns = record_sequences(max_seq_len=2, ended=[[False, False, False, False, False]])

    assert columns["starts"][:, 0].tolist() == [True, False, True, False, True]


def test_sequence_begins_with_an_episode():
    columns = record_sequences(max_seq_len=3, ended=[[False, True, False, False, False]])

    assert columns["starts"][:, 0].tolist() == [True, False, True, False, False]


def test_sequence_does_not_begin_with_an_idle_step():
    # The last step only begins an episode.
    columns = record_sequences(
        max_seq_len=2,
        ended=[[False, False, False, True, False]],
        idle=[[False, False, False, False, True]],
    )

    assert columns["starts"][:, 0].tolist() == [True, False, True, False, False]


def test_memory_of_sequences_is_that_before_their_first_steps():
    columns = record_sequences(
        max_seq_len=2,
        ended=[[False, False, False, False], [False, False, False, False]],
        memory=[[10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]],
    )

    # Both environments begin a sequence at steps 0 and 2; the first environment is listed first.
    first_part, second_part = columns["memory"]
    assert first_part[:, 0].tolist() == [10, 12, 20, 22]
    assert second_part[:, 0].tolist() == [-10, -12, -20, -22]


def test_memory_of_sequences_leaves_idle_steps_out():
    columns = record_sequences(
        max_seq_len=2,
        ended=[[False, True, False], [False, True, False]],
        idle=[[False, False, False], [False, False, True]],
        memory=[[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]],
    )

    assert columns["memory"][0][:, 0].tolist() == [10, 12, 20]


# --- columns for views of the future --------------------------------------------------------------


def make_ahead(requested, *, everything=False):
    """Return the recorder for a model whose training views request these columns."""
    views = SimpleNamespace(ahead=[SimpleNamespace(column=name) for name in requested])
    return Ahead(SimpleNamespace(views=views), everything)


def record_step(ahead, *, has_state=True, last_obs=None):
    """Return the columns of a step in two environments: 1 terminates, and 0 is truncated.

    The next observations are 7 and 8. `t` is 5 and 9 after the step.
    """
    state = SimpleNamespace(history=SimpleNamespace(t=np.array([5, 9])))
    step = SimpleNamespace(
        raw_action=np.array([[0], [0]]),
        logp=np.array([[1], [1]]),
        dist_inputs=np.array([[2], [2]]),
        value=np.array([[3], [3]]),
        state=state if has_state else None,
    )
    return ahead.row(
        row={"obs": np.zeros((2, 1)), "reward": np.ones(2)},
        step=step,
        terminated=np.array([False, True]),
        truncated=np.array([True, False]),
        encoded=np.array([[7.0], [8.0]]),
        last=last_obs,
    )


def test_only_requested_columns_are_stored():
    ahead = make_ahead(["rewards", "t", "truncateds"])

    columns = record_step(ahead)

    assert ahead
    assert columns.keys() == {"rewards", "t", "truncateds"}
    assert columns["rewards"].tolist() == [1, 1]
    assert columns["t"].tolist() == [4, 8]  # before the step


def test_time_is_not_stored_without_a_state():
    assert record_step(make_ahead(["t"]), has_state=False) == {}


def test_nothing_is_stored_by_default():
    ahead = make_ahead([])

    assert not ahead
    assert record_step(ahead) == {}


def test_every_column_can_be_stored():
    ahead = make_ahead([], everything=True)

    columns = record_step(ahead, last_obs=np.array([[-2.0], [-1.0]]))

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
    columns = record_step(make_ahead([], everything=True), last_obs=None)

    assert columns["new_obs"].tolist() == [[7], [8]]


@pytest.mark.parametrize(
    ("requested", "everything", "needed"),
    [
        ([], False, False),
        (["rewards", "t"], False, False),
        (["new_obs"], False, True),
        ([], True, True),
        (["rewards"], True, True),
    ],
)
def test_last_observations_are_needed_for_new_observations(requested, everything, needed):
    assert make_ahead(requested, everything=everything).last_obs is needed


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
    return added_columns(postprocess, policy or make_policy(), columns, done, idle)


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
        added_columns(postprocess, make_policy(), columns, np.zeros((2, 1), bool), idle=None)
    assert message in str(caught.value)
