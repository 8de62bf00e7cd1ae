"""Memories of models and the states of episodes, against a list of all states that a model
returned.
"""

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
from rlcatalog_policy.state import EpisodeStates, Memory

BOX, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)


def model_of(initial=(), **requirements):
    """Return a model with an initial state and views."""

    class Model(ModelV2):
        def get_initial_state(self):
            return initial

    model = Model(BOX, TWO, 2, {}, "model", "torch")
    model.view_requirements.update(requirements)
    return model


def memory_of(initial=(), **requirements):
    return Memory(model_of(initial, **requirements))


def view(i=0, shift=-1, shape=(2,)):
    return ViewRequirement(
        f"state_out_{i}", shift=shift, space=spaces.Box(-1, 1, shape, np.float32)
    )


# --- the initial state ----------------------------------------------------------------------------


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
def test_initial_state_becomes_arrays(part, dtype):
    for state in ([part], (part,)):
        memory = memory_of(state)
        (array,) = memory.initial
        assert isinstance(array, np.ndarray)
        assert array.dtype == dtype
        assert array.tolist() == [1, 1]
        assert memory
        assert not memory.skips


@pytest.mark.parametrize(
    "state", [None, 3, {"a": [1]}, "text", ["a"], [[1.0], ["b"]], [None], np.zeros(2)], ids=repr
)
def test_other_initial_states_are_refused(state):
    with pytest.raises(
        ModelContractError,
        match=r"Model\.get_initial_state\(\) must return a list of arrays or tensor",
    ):
        memory_of(state)


def test_model_without_a_state_has_no_memory():
    memory = memory_of()
    assert not memory
    assert memory.start(3) == memory.begin(3) == ()
    assert memory.after((), ()) == ((), ())


# --- windows --------------------------------------------------------------------------------------

#: Shift → steps that are seen, whether they have an axis.
SHIFTS = [
    (-1, [-1], False),
    (np.int64(-3), [-3], False),
    ([-1], [-1], True),
    ([-2, -1], [-2, -1], True),
    ("-3:-1", [-3, -2, -1], True),
    ("-1:-1", [-1], True),
    ([-1, -2], [-1, -2], True),
    ([-3, -1], [-3, -1], True),
    ("-3:-2", [-3, -2], True),
    ([-2], [-2], True),
]


@pytest.mark.parametrize(("shift", "steps", "axis"), SHIFTS, ids=str)
def test_memory_is_what_its_shift_names(shift, steps, axis):
    memory = memory_of([np.float32([5, 7])], state_in_0=view(0, shift))
    rows, returned = 3, [np.tile(np.float32([5, 7]), (3, 1))] * 4
    seen, past = memory.start(rows), memory.begin(rows)
    last = steps == list(range(-len(steps), 0))
    assert memory.skips == (not last)
    for t in range(5):
        expected = [returned[step] for step in steps]
        np.testing.assert_array_equal(seen[0], np.stack(expected, 1) if axis else expected[0])
        assert [part.shape for part in past] == ([] if last else [(rows, -min(steps), 2)])
        new = np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * t
        seen, past = memory.after(seen, [new], past)
        returned.append(new)


def test_parts_with_and_without_views_are_kept_apart():
    views = {
        "state_in_1": view(1, [-3, -1]),
        "state_in_3": view(3, -2, ()),
        "state_in_2": view(2, "-2:-1", (1, 2)),
    }
    memory = memory_of([np.float32([1]), np.float32([2, 2])], **views)
    assert [part.tolist() for part in memory.initial] == [[1], [[2, 2]] * 2, [[[0, 0]]] * 2, 0]
    assert [part.tolist() for part in memory.before] == [[[2, 2]] * 3, [0, 0]]
    assert [part.shape for part in memory.start(4)] == [(4, 1), (4, 2, 2), (4, 2, 1, 2), (4,)]
    assert [part.shape for part in memory.begin(4)] == [(4, 3, 2), (4, 2)]
    seen, past = memory.start(1), memory.begin(1)
    for t in range(1, 5):
        new = [
            np.float32([[t]]),
            np.float32([[t, 2 * t]]),
            np.float32([[[t, 3 * t]]]),
            np.float32([4 * t]),
        ]
        seen, past = memory.after(seen, new, past)
    assert [part[0].tolist() for part in seen] == [[4], [[2, 4], [4, 8]], [[[3, 9]], [[4, 12]]], 12]
    assert [part[0].tolist() for part in past] == [[[2, 4], [3, 6], [4, 8]], [12, 16]]


def test_model_returns_as_many_states_as_it_was_given():
    memory = memory_of([np.zeros(2), np.zeros(3)])
    seen = memory.start(2)
    for returned in (
        [],
        [np.zeros((2, 2))],
        [np.zeros((2, 2)), np.zeros((2, 3)), np.zeros((2, 1))],
    ):
        expected = (
            rf"Model\.forward\(\) returned {len(returned)} states; get_initial_state\(\) has 2\."
        )
        with pytest.raises(ModelContractError, match=expected):
            memory.after(seen, returned)


def test_model_returns_states_of_the_same_shapes():
    memory = memory_of([np.zeros(2)])
    for shape in ((2, 3), (1, 2), (2,), (2, 2, 1)):
        with pytest.raises(
            ModelContractError, match=r"same shapes, .*, a row for each episode; found"
        ) as caught:
            memory.after(memory.start(2), [np.zeros(shape)])
        assert f"[(2, 2)], a row for each episode; found [{shape}]. get_initial_state()" in str(
            caught.value
        )
    for shift in ([-2, -1], [-3, -1]):
        memory = memory_of([np.zeros(2)], state_in_0=view(0, shift))
        for shape in ((2, 3), (1, 2), (2, 2, 2)):
            with pytest.raises(
                ModelContractError, match="must return states of the same shapes"
            ) as caught:
                memory.after(memory.start(2), [np.zeros(shape)], memory.begin(2))
            assert f"[(2, 2)], a row for each episode; found [{shape}]. get_initial_state()" in str(
                caught.value
            )


@pytest.mark.parametrize("shift", [0, 1, [-1, 0], "-2:0", [-3, 2]], ids=str)
def test_state_of_the_present_is_refused(shift):
    with pytest.raises(
        NotServedError,
        match=r"requests the view 'state_in_0': state_out_0 at .* must be -1 or less",
    ):
        memory_of([np.zeros(2)], state_in_0=view(0, shift))


def test_state_reads_its_own_column_only():
    for column in ("state_out_1", "obs"):
        with pytest.raises(
            NotServedError,
            match=f"the view 'state_in_0' of '{column}'; it can only read 'state_out_0'",
        ):
            memory_of([np.zeros(2)], state_in_0=ViewRequirement(column, shift=-1))
    assert memory_of([np.zeros(2)], state_in_0=ViewRequirement(None, shift=-1)).start(1)[
        0
    ].shape == (1, 2)


def test_earlier_state_needs_a_view_or_a_beginning():
    match = (
        r"Model requests the views state_in_1, state_in_2, but has neither a view 'state_in_0'"
        r" nor an initial state"
    )
    with pytest.raises(ModelContractError, match=match):
        memory_of([], state_in_2=view(2), state_in_1=view(1))
    assert len(memory_of([np.zeros(2)], state_in_2=view(2), state_in_1=view(1)).initial) == 3


# --- the states of episodes -----------------------------------------------------------------------


def states_of(initial=(), shift=None, **views):
    requirements = {} if shift is None else {"state_in_0": view(0, shift)}
    codec = action_codec(SpaceInfo.read(TWO, "action"))
    past = {
        name: ViewRequirement(name.partition("_")[2], shift=step) for name, step in views.items()
    }
    return EpisodeStates(
        memory_of(initial, **requirements), Views(past, (2,), np.float32, codec, True, "Model")
    )


ONES = [np.ones(2, np.float32)]


@pytest.mark.parametrize(
    ("states", "looks_back", "carries"),
    [
        (states_of(), False, False),
        (states_of(ONES), False, True),
        (states_of(x_obs=-1), True, True),
        (states_of(ONES, x_obs=-1), True, True),
    ],
    ids=["nothing", "memory", "views", "both"],
)
def test_what_there_is_to_carry(states, looks_back, carries):
    assert (states.looks_back, states.carries) == (looks_back, carries)
    state = states.start(3)
    assert [part.tolist() for part in state.memory] == ([[[1, 1]] * 3] if states.memory else [])
    assert state.seen == {}
    assert state.history.t.tolist() == [0, 0, 0]
    resumed = states.resume(np.zeros((3, 2), np.float32), None, None)
    assert list(resumed.seen) == (["x_obs"] if looks_back else [])
    assert states.shown(resumed) == resumed.seen


def test_state_goes_on_where_it_stopped():
    states, obs = states_of(ONES, [-3, -1], x_obs=-1, x_rewards=-1), np.float32([[1, 2], [3, 4]])
    before = states.resume(obs, None, None)
    assert before.seen["x_obs"].tolist() == [[0, 0], [0, 0]]
    state = states.after(before, obs, np.array([[0], [1]]), (obs * 10,))
    assert state.seen is before.seen
    assert state.history.t.tolist() == [1, 1]
    assert state.memory[0].tolist() == [[[1, 1], [10, 20]], [[1, 1], [30, 40]]]
    assert state.past[0].tolist() == [[[1, 1], [1, 1], [10, 20]], [[1, 1], [1, 1], [30, 40]]]
    resumed = states.resume(obs + 1, state, [5, 6])
    assert resumed.seen["x_obs"].tolist() == obs.tolist()
    assert resumed.seen["x_rewards"].tolist() == [5, 6]
    assert resumed.memory is state.memory
    again = states.restart(state, [0])
    assert again.history.t.tolist() == [0, 1]
    assert again.memory[0].tolist() == [[[1, 1], [1, 1]], [[1, 1], [30, 40]]]
    assert again.past[0].tolist() == [[[1, 1]] * 3, [[1, 1], [1, 1], [30, 40]]]
    row = resumed.rows([1])
    assert row.memory[0].tolist() == [[[1, 1], [30, 40]]]
    assert row.past[0].tolist() == [[[1, 1], [1, 1], [30, 40]]]
    assert row.history.windows["obs"].tolist() == [[[3, 4]]]
    assert row.history.t.tolist() == [1]
    assert row.seen["x_rewards"].tolist() == [6]


def test_without_views_no_steps_are_counted_and_no_rewards_read():
    states, obs = states_of(ONES), np.zeros((2, 2), np.float32)
    state = states.after(
        states.resume(obs, None, "no rewards"), obs, np.zeros((2, 1), int), (obs + 3,)
    )
    assert state.history.t.tolist() == [0, 0]
    assert state.memory[0].tolist() == [[3, 3], [3, 3]]
    assert states.resume(obs, state, None) is state


@pytest.mark.parametrize("state", ["text", 3, (), [np.zeros((2, 2))]], ids=repr)
def test_what_is_no_state_is_refused_by_its_class(state):
    match = (
        "state: expected the state of 2 rows, as act\\(\\) returned it, found"
        f" {type(state).__name__}"
    )
    with pytest.raises(ModelContractError, match=match):
        states_of(ONES).resume(np.zeros((2, 2), np.float32), state, None)


def test_state_of_other_rows_is_refused_by_their_number():
    states = states_of(ONES)
    for rows in (1, 3):
        state = states.start(rows)
        assert isinstance(state, State)
        with pytest.raises(
            ModelContractError, match=f"expected the state of 2 rows, .*, found {rows} rows"
        ):
            states.resume(np.zeros((2, 2), np.float32), state, None)
