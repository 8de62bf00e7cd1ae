"""The memory of a model and the states of episodes, from step to step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcatalog import SpaceInfo, ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.models import ModelV2
from rlcatalog_policy import State
from rlcatalog_policy.history import Views
from rlcatalog_policy.state import EpisodeStates, Memory, NoStates


def make_memory(initial_state=(), **view_requirements):
    """Return the memory of a model with this initial state and these views."""

    class Model(ModelV2):
        def get_initial_state(self):
            return initial_state

    obs_space = spaces.Box(-1, 1, (2,), np.float32)
    model = Model(obs_space, spaces.Discrete(2), 2, {}, "model", "torch")
    model.view_requirements.update(view_requirements)
    return Memory(model)


def state_view(index=0, *, shift=-1, shape=(2,)):
    """Return the requirement of a view into the states that `forward` returned earlier."""
    space = spaces.Box(-1, 1, shape, np.float32)
    return ViewRequirement(f"state_out_{index}", shift=shift, space=space)


# --- the initial state ----------------------------------------------------------------------------


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize(
    ("part", "dtype"),
    [
        (np.ones(2, np.float64), "float64"),
        (np.ones(2, np.float16), "float32"),
        (np.ones(2, np.int32), "int32"),
        ([True, True], "bool"),
        (torch.ones(2), "float32"),
        (torch.ones(2, dtype=torch.int64), "int64"),
        (torch.ones(2, dtype=torch.float64), "float64"),
        (torch.ones(2, dtype=torch.bfloat16), "float32"),
        (torch.ones(2, dtype=torch.float16), "float32"),
        (torch.ones(2, requires_grad=True), "float32"),
    ],
    ids=repr,
)
def test_initial_state_becomes_arrays(part, dtype, container):
    memory = make_memory(container([part]))

    [array] = memory.initial
    assert isinstance(array, np.ndarray)
    assert array.dtype == dtype
    assert array.tolist() == [1, 1]


@pytest.mark.parametrize(
    "initial_state",
    [None, 3, {"a": [1]}, "text", ["a"], [[1.0], ["b"]], [None], np.zeros(2)],
    ids=repr,
)
def test_initial_state_of_other_than_numbers_is_an_error(initial_state):
    with pytest.raises(ModelContractError, match=r"^Model\.get_initial_state\(\) must"):
        make_memory(initial_state)


def test_model_with_an_initial_state_has_a_memory():
    memory = make_memory([np.ones(2)])

    assert memory
    assert not memory.skips


def test_model_without_an_initial_state_has_no_memory():
    memory = make_memory()

    assert not memory
    assert memory.start(3) == ()
    assert memory.start_past(3) == ()
    assert memory.after((), ()) == ((), ())


# --- views of earlier states ----------------------------------------------------------------------


@pytest.fixture
def memory_of_four_parts():
    """A memory whose parts 0 and 1 have initial values; parts 1, 2 and 3 are views."""
    return make_memory(
        [np.float32([1]), np.float32([2, 2])],
        state_in_1=state_view(1, shift=[-3, -1]),
        state_in_2=state_view(2, shift="-2:-1", shape=(1, 2)),
        state_in_3=state_view(3, shift=-2, shape=()),
    )


def test_views_begin_with_the_initial_state_or_zeros(memory_of_four_parts):
    initial = [part.tolist() for part in memory_of_four_parts.initial]

    assert initial == [
        [1],
        [[2, 2], [2, 2]],  # two steps of the initial state
        [[[0, 0]], [[0, 0]]],  # two steps of shape (1, 2)
        0,  # a single number
    ]


def test_memory_starts_with_a_row_for_each_episode(memory_of_four_parts):
    memory = memory_of_four_parts.start(4)
    past = memory_of_four_parts.start_past(4)

    assert [part.shape for part in memory] == [(4, 1), (4, 2, 2), (4, 2, 1, 2), (4,)]
    assert [part.shape for part in past] == [(4, 3, 2), (4, 2)]


def test_parts_of_a_memory_are_kept_apart():
    memory = make_memory(
        [np.float32([1]), np.float32([2])],
        state_in_1=state_view(1, shift=[-3, -1], shape=(1,)),
    )
    state = memory.start(1)
    past = memory.start_past(1)

    for t in (1, 2, 3, 4):
        returned = [np.float32([[t]]), np.float32([[10 * t]])]
        state, past = memory.after(state, returned, past)

    assert state[0].tolist() == [[4]]  # without a view, the last state
    assert state[1].tolist() == [[[20], [40]]]  # the third-last state and the last
    assert past[0].tolist() == [[[20], [30], [40]]]  # the states that the view still needs


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        pytest.param([], id="none"),
        pytest.param([np.zeros((2, 2))], id="one"),
        pytest.param([np.zeros((2, 2)), np.zeros((2, 3)), np.zeros((2, 1))], id="three"),
    ],
)
def test_forward_must_return_as_many_states_as_there_are(returned):
    memory = make_memory([np.zeros(2), np.zeros(3)])

    with pytest.raises(ModelContractError, match=f"returned {len(returned)} states") as caught:
        memory.after(memory.start(2), returned)

    assert str(caught.value) == (
        f"Model.forward() returned {len(returned)} states; get_initial_state() has 2."
    )


@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (2,), (2, 2, 1)], ids=str)
@pytest.mark.parametrize(
    "views",
    [
        pytest.param({}, id="no-view"),
        pytest.param({"state_in_0": state_view(shift=[-2, -1])}, id="two-states"),
        pytest.param({"state_in_0": state_view(shift=[-3, -1])}, id="skips-a-state"),
    ],
)
def test_forward_must_return_states_of_the_same_shape(views, shape):
    memory = make_memory([np.zeros(2)], **views)
    state = memory.start(2)
    past = memory.start_past(2)

    with pytest.raises(ModelContractError, match=r"same shapes, \[\(2, 2\)\], a row") as caught:
        memory.after(state, [np.zeros(shape)], past)

    assert f"found [{shape}]" in str(caught.value)


@pytest.mark.parametrize("shift", [0, 1, [-1, 0], "-2:0", [-3, 2]], ids=str)
def test_view_of_a_present_or_future_state_is_rejected(shift):
    with pytest.raises(NotServedError, match="every shift must be -1 or less") as caught:
        make_memory([np.zeros(2)], state_in_0=state_view(shift=shift))

    assert "requests the view 'state_in_0': state_out_0 at " in str(caught.value)


@pytest.mark.parametrize("column", ["state_out_1", "obs"])
def test_view_of_a_state_reads_no_other_column(column):
    with pytest.raises(NotServedError, match=f"the view 'state_in_0' of '{column}'") as caught:
        make_memory([np.zeros(2)], state_in_0=ViewRequirement(column, shift=-1))

    assert "it can only read 'state_out_0'" in str(caught.value)


def test_view_of_a_state_reads_its_own_column_by_default():
    memory = make_memory([np.zeros(2)], state_in_0=ViewRequirement(None, shift=-1))

    [part] = memory.start(1)
    assert part.shape == (1, 2)


def test_view_of_a_later_state_needs_all_states_before():
    with pytest.raises(ModelContractError, match="nor an initial state") as caught:
        make_memory([], state_in_2=state_view(2), state_in_1=state_view(1))

    assert (
        "Model requests the views state_in_1, state_in_2, but has neither a view 'state_in_0'"
        " nor an initial state" in str(caught.value)
    )


def test_views_of_states_may_follow_an_initial_state():
    memory = make_memory([np.zeros(2)], state_in_2=state_view(2), state_in_1=state_view(1))

    assert len(memory.initial) == 3


# --- the states of episodes -----------------------------------------------------------------------


def make_states(*, initial_state=(), state_shift=None, view_columns=()):
    """Return the states of episodes.

    Args:
        initial_state: The model's initial state.
        state_shift: The shift of a view `state_in_0`, if there is one.
        view_columns: Columns of which the model sees the last value, under the same name with
            "last_" before it.
    """
    state_views = {}
    if state_shift is not None:
        state_views["state_in_0"] = state_view(shift=state_shift)
    views = {f"last_{column}": ViewRequirement(column, shift=-1) for column in view_columns}
    codec = action_codec(SpaceInfo.read(spaces.Discrete(2), "action"))
    return EpisodeStates(
        make_memory(initial_state, **state_views),
        Views(views, (2,), np.float32, codec, True, "Model"),
    )


ONES = [np.ones(2, np.float32)]


def test_model_without_memory_and_views_has_no_state():
    states = NoStates()
    obs = np.zeros((3, 2), np.float32)

    before = states.resume(obs, None, None)

    assert states.start(3) is None
    assert before.memory == ()
    assert before.views == {}
    assert before.steps is None
    assert states.after(before, obs, np.zeros((3, 1)), ()) is None


def test_state_starts_with_the_initial_state():
    state = make_states(initial_state=ONES).start(3)

    [memory] = state.memory
    assert memory.tolist() == [[1, 1], [1, 1], [1, 1]]
    assert state.views == {}
    assert state.history.t.tolist() == [0, 0, 0]


def test_state_without_memory_starts_without_arrays():
    assert make_states().start(3).memory == ()


@pytest.mark.parametrize("initial_state", [(), ONES], ids=["no-memory", "memory"])
def test_resumed_state_shows_the_views(initial_state):
    states = make_states(initial_state=initial_state, view_columns=["obs"])

    state = states.resume(np.zeros((3, 2), np.float32), None, None)

    assert list(state.all_views) == ["last_obs"]
    assert state.views == state.all_views


@pytest.mark.parametrize("initial_state", [(), ONES], ids=["no-memory", "memory"])
def test_resumed_state_without_views_shows_nothing(initial_state):
    states = make_states(initial_state=initial_state)

    state = states.resume(np.zeros((3, 2), np.float32), None, None)

    assert state.all_views == {}
    assert state.views == {}


@pytest.fixture
def states_of_every_kind():
    """States with a memory of the last and the third-last state, and views of the last step."""
    return make_states(initial_state=ONES, state_shift=[-3, -1], view_columns=["obs", "rewards"])


def take_first_step(states, *, obs, new_memory):
    """Return the states of two episodes before and after their first step."""
    obs = np.float32(obs)
    before = states.resume(obs, None, None)
    after = states.after(before, obs, np.array([[0], [1]]), (np.float32(new_memory),))
    return before, after


def test_first_step_shows_zeros_for_the_last_observation(states_of_every_kind):
    before, after = take_first_step(
        states_of_every_kind, obs=[[1, 2], [3, 4]], new_memory=[[10, 20], [30, 40]]
    )

    assert before.all_views["last_obs"].tolist() == [[0, 0], [0, 0]]
    assert after.views is before.all_views


def test_step_adds_to_memory_past_and_history(states_of_every_kind):
    _, state = take_first_step(
        states_of_every_kind, obs=[[1, 2], [3, 4]], new_memory=[[10, 20], [30, 40]]
    )

    # The memory has the states of three steps ago, which is the initial one, and of this step.
    assert state.memory[0].tolist() == [[[1, 1], [10, 20]], [[1, 1], [30, 40]]]
    assert state.past[0].tolist() == [[[1, 1], [1, 1], [10, 20]], [[1, 1], [1, 1], [30, 40]]]
    assert state.history.t.tolist() == [1, 1]


def test_resumed_state_shows_the_last_step(states_of_every_kind):
    _, state = take_first_step(
        states_of_every_kind, obs=[[1, 2], [3, 4]], new_memory=[[10, 20], [30, 40]]
    )

    resumed = states_of_every_kind.resume(np.zeros((2, 2)), state, prev_reward=[5, 6])

    assert resumed.all_views["last_obs"].tolist() == [[1, 2], [3, 4]]
    assert resumed.all_views["last_rewards"].tolist() == [5, 6]
    assert resumed.memory is state.memory


def test_restart_gives_a_row_its_initial_state():
    # The initial state is [1, 1]; the model sees the last state, and the observation before.
    states = make_states(initial_state=ONES, view_columns=["obs"])
    _, state = take_first_step(states, obs=[[1, 2], [3, 4]], new_memory=[[10, 20], [30, 40]])

    restarted = states.restart(state, [0])

    assert restarted.memory[0].tolist() == [[1, 1], [30, 40]]
    assert restarted.history.windows["obs"].tolist() == [[[0, 0]], [[3, 4]]]
    assert restarted.history.t.tolist() == [0, 1]


def test_restart_gives_a_row_its_initial_past():
    states = make_states(initial_state=ONES, state_shift=-2)
    _, state = take_first_step(states, obs=[[1, 2], [3, 4]], new_memory=[[10, 20], [30, 40]])

    restarted = states.restart(state, [0])

    assert restarted.past[0].tolist() == [[[1, 1], [1, 1]], [[1, 1], [30, 40]]]


def test_rows_returns_the_state_of_some_episodes():
    # The model sees the state of two steps ago, and the last observation and reward.
    states = make_states(initial_state=ONES, state_shift=-2, view_columns=["obs", "rewards"])
    _, state = take_first_step(states, obs=[[1, 2], [3, 4]], new_memory=[[10, 20], [30, 40]])
    before = states.resume(np.zeros((2, 2)), state, prev_reward=[5, 6])
    state = State(before.memory, before.history, before.all_views, before.past)

    second_row = state.rows([1])

    assert second_row.memory[0].tolist() == [[1, 1]]  # two steps ago: the initial state
    assert second_row.past[0].tolist() == [[[1, 1], [30, 40]]]  # and the next one
    assert second_row.history.windows["obs"].tolist() == [[[3, 4]]]
    assert second_row.history.t.tolist() == [1]
    assert second_row.views["last_rewards"].tolist() == [6]


def test_steps_are_not_counted_without_views():
    states = make_states(initial_state=ONES)

    _, state = take_first_step(states, obs=[[1, 2], [3, 4]], new_memory=[[3, 3], [4, 4]])

    assert state.history.t.tolist() == [0, 0]
    assert state.memory[0].tolist() == [[3, 3], [4, 4]]


def test_rewards_are_not_read_without_views():
    states = make_states(initial_state=ONES)
    state = states.start(2)

    obs = np.zeros((2, 2), np.float32)
    assert states.resume(obs, state, "no rewards").history is state.history
    states.resume(obs, None, "no rewards")  # no error either


@pytest.mark.parametrize("state", ["text", 3, (), [np.zeros((2, 2))]], ids=repr)
def test_error_for_another_value_as_state_names_its_class(state):
    states = make_states(initial_state=ONES)

    with pytest.raises(ModelContractError, match="state: expected the state of 2 rows") as caught:
        states.resume(np.zeros((2, 2), np.float32), state, None)

    message = str(caught.value)
    assert f"rows, as act() returned it, found {type(state).__name__}" in message


@pytest.mark.parametrize("rows", [1, 3])
def test_error_for_the_state_of_other_rows_names_their_number(rows):
    states = make_states(initial_state=ONES)
    state = states.start(rows)
    assert isinstance(state, State)

    with pytest.raises(ModelContractError, match=f"found {rows} rows") as caught:
        states.resume(np.zeros((2, 2), np.float32), state, None)

    assert "expected the state of 2 rows, " in str(caught.value)
