"""Histories of episodes: which columns are kept, what views of them show, and what a step adds."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo, ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import ModelContractError, NonFiniteError, NotServedError
from rlcatalog_policy import checked_reward
from rlcatalog_policy.history import Views

FOUR, WIDE = spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)
BOTH = spaces.Tuple([FOUR, WIDE])
ROWS = 2
#: Observations, rewards and raw actions of five steps of two episodes.
OBS = np.arange(20, dtype=np.float32).reshape(5, ROWS, 2) + 1
REWARDS = np.arange(10, dtype=np.float32).reshape(5, ROWS) / 2 + 1
ACTIONS = np.array([[[3], [1]], [[2], [2]], [[1], [3]], [[0], [1]], [[2], [0]]])


def views(action=FOUR, flat=True, **requirements):
    codec = action_codec(SpaceInfo.read(action, "action"))
    return Views(requirements, (2,), np.float32, codec, flat, "Model")


def view(column=None, shift=0, **options):
    return ViewRequirement(column, shift=shift, **options)


def ahead(column=None, shift=0, **options):
    return ViewRequirement(column, shift=shift, used_for_compute_actions=False, **options)


def after(served, steps, actions=ACTIONS):
    """Return the history after that many steps, including the last step's rewards."""
    history = served.start(ROWS)
    for t in range(steps):
        history = served.after(
            served.rewarded(history, REWARDS[t - 1] if t else None), OBS[t], actions[t]
        )
    return served.rewarded(history, REWARDS[steps - 1])


# --- which views there are ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "shift", "future"),
    [
        ("obs", 0, False),
        ("obs", -1, False),
        ("obs", 1, True),
        ("obs", [0, 2], True),
        ("obs", [-2, 0], False),
        ("t", 0, False),
        ("t", 1, True),
        ("t", -3, False),
        ("actions", -1, False),
        ("actions", 0, True),
        ("actions", [-2, -1], False),
        ("actions", [0, 1], True),
        ("rewards", -1, False),
        ("rewards", 0, True),
        ("action_inputs", -2, False),
        ("action_inputs", 0, True),
        ("new_obs", 0, True),
        ("vf_preds", 1, True),
        ("terminateds", 0, True),
        ("dones", 0, True),
        ("added_by_a_loop", 0, True),
    ],
)
def test_view_is_ahead_where_acting_does_not_know_its_values(column, shift, future):
    served = views(x=ahead(column, shift))
    assert [one.name for one in served.ahead] == (["x"] if future else [])
    assert served.acting == ()  # it was not requested for acting
    if not future:
        assert views(x=view(column, shift)).acting == ("x",)
        return
    match = (
        "into the column"
        if column == "added_by_a_loop"
        else "which is not known when it acts; pass used_for"
    )
    with pytest.raises(NotServedError, match=f"Model requests the view 'x'.*{match}"):
        views(x=view(column, shift))


@pytest.mark.parametrize(
    ("column", "shift"),
    [("obs", [-1, 1]), ("actions", "-1:0"), ("rewards", [-3, 0]), ("new_obs", -1)],
)
def test_view_looks_back_or_ahead(column, shift):
    with pytest.raises(
        NotServedError, match=r"a view looks either back or ahead. Request two views"
    ):
        views(x=ahead(column, shift))


def test_states_and_the_current_observation_are_no_views():
    plain = {"obs": view(), "state_in_0": view("state_out_0", -1), "state_out_0": view()}
    assert not views(**plain)
    assert views(**plain).all == []
    assert not views(obs=view("obs", [0]))
    for other in ({"obs": view("obs", -1)}, {"obs": view("rewards", -1)}, {"now": view("obs")}):
        served = views(**other)
        assert served
        assert served.acting == tuple(other)


def test_views_say_when_they_are_seen_and_how_often_they_repeat():
    served = views(
        a=view("obs", -1, used_for_training=False),
        b=ahead("rewards", -1, batch_repeat_value=3),
        c=view("t"),
        d=ahead("obs", 1, batch_repeat_value=2),
    )
    assert served.acting == ("a", "c")
    assert served.training == {"b": 3, "c": 1, "d": 2}
    assert [one.name for one in served.all] == ["a", "b", "c", "d"]
    assert set(served.see(served.start(1), OBS[0, :1])) == {"a", "b", "c"}


def test_unknown_columns_are_only_for_training():
    with pytest.raises(
        NotServedError,
        match="into the column 'mine'; expected one of obs, actions, action_inputs, r",
    ):
        views(x=view("mine", -1))
    column = np.arange(6.0).reshape(3, 2)
    seen = views(x=ahead("mine", 1)).look_ahead({"mine": column}, np.zeros((3, 2), bool))["x"]
    np.testing.assert_array_equal(seen, [column[1], column[2], [0, 0]])


@pytest.mark.parametrize(
    ("name", "data_col", "shift", "column", "shifts", "single"),
    [
        ("prev_actions", None, 0, "actions", (-1,), True),
        ("prev_actions", None, -1, "actions", (-1,), True),
        ("x", "prev_action", -2, "actions", (-2,), True),
        ("x", "prev_rewards", [0], "rewards", (-1,), False),
        ("prev_reward", None, [-3, -1], "rewards", (-3, -1), False),
        ("x", "action", -1, "actions", (-1,), True),
        ("reward", None, -1, "rewards", (-1,), True),
        ("rewards", "obs", -1, "obs", (-1,), True),
        ("x", "obs", "-2:0", "obs", (-2, -1, 0), False),
        ("x", "obs", "-1:-1", "obs", (-1,), False),
        ("x", "obs", np.int64(-2), "obs", (-2,), True),
        ("x", "t", (-2, 0), "t", (-2, 0), False),
    ],
)
def test_requirement_is_read_as_rllib_reads_it(name, data_col, shift, column, shifts, single):
    (one,) = views(**{name: view(data_col, shift)}).all
    assert (one.name, one.column, one.shifts, one.single) == (name, column, shifts, single)


# --- what is kept ---------------------------------------------------------------------------------


def test_as_many_values_are_kept_as_the_longest_view_needs():
    served = views(
        a=view("obs", -2),
        b=view("obs", [-4, -1]),
        c=view("obs", 0),
        d=view("actions", "-3:-1"),
        e=view("t"),
        f=ahead("rewards", 1),
        g=ahead("rewards", -1),
    )
    assert served.windows == {
        "obs": (4, (2,), np.float32),
        "actions": (3, (1,), np.int64),
        "rewards": (1, (), np.float32),
    }
    assert served.reads_rewards
    history = served.start(3)
    assert {name: (window.shape, window.dtype) for name, window in history.windows.items()} == {
        "obs": ((3, 4, 2), np.float32),
        "actions": ((3, 3, 1), np.int64),
        "rewards": ((3, 1), np.float32),
    }
    assert not any(window.any() for window in history.windows.values())
    assert history.t.tolist() == [0, 0, 0]
    assert history.t.dtype == np.int64
    assert views(a=view("obs", 0), b=view("t", -1)).windows == {}
    assert not views(a=view("obs", -1)).reads_rewards


def test_actions_are_kept_in_the_dtype_of_their_space():
    for action, width, dtype, inputs in (
        (FOUR, 1, np.int64, 4),
        (WIDE, 2, np.float32, 2),
        (BOTH, 3, np.float32, 6),
    ):
        windows = views(action, a=view("actions", -1), b=view("action_inputs", -2)).windows
        assert windows == {
            "actions": (1, (width,), dtype),
            "action_inputs": (2, (inputs,), np.float32),
        }


def test_step_is_added_at_the_end_and_its_reward_with_the_next():
    served = views(
        a=view("obs", "-2:-1"),
        b=view("actions", "-2:-1"),
        c=view("rewards", "-2:-1"),
        d=view("action_inputs", -1),
    )
    history = served.after(served.start(ROWS), OBS[0], ACTIONS[0])
    assert history.t.tolist() == [1, 1]
    np.testing.assert_array_equal(history.windows["obs"], np.stack([0 * OBS[0], OBS[0]], 1))
    np.testing.assert_array_equal(
        history.windows["actions"], np.stack([0 * ACTIONS[0], ACTIONS[0]], 1)
    )
    np.testing.assert_array_equal(
        history.windows["action_inputs"][:, 0], np.eye(4)[ACTIONS[0][:, 0]]
    )
    assert not history.windows["rewards"].any()
    rewarded = served.rewarded(history, REWARDS[0])
    np.testing.assert_array_equal(
        rewarded.windows["rewards"], np.stack([0 * REWARDS[0], REWARDS[0]], 1)
    )
    assert rewarded.windows["obs"] is history.windows["obs"]
    assert served.after(rewarded, OBS[1], ACTIONS[1]).t.tolist() == [2, 2]
    np.testing.assert_array_equal(after(served, 4).windows["rewards"], REWARDS[2:4].T)
    np.testing.assert_array_equal(after(served, 4).windows["obs"], OBS[2:4].swapaxes(0, 1))


@pytest.mark.parametrize("rows", [[1], np.array([False, True])], ids=["indices", "booleans"])
def test_restarted_row_has_no_past(rows):
    served = views(a=view("obs", -2), c=view("rewards", -1))
    history = after(served, 3)
    again = served.restart(history, rows)
    assert again.t.tolist() == [3, 0]
    for name, window in again.windows.items():
        assert not window[1].any()
        np.testing.assert_array_equal(window[0], history.windows[name][0])
        assert history.windows[name][1].all()  # the former history is unchanged


def test_rewards_are_only_read_where_a_view_needs_them():
    served = views(a=view("obs", -1))
    history = served.after(served.start(ROWS), OBS[0], ACTIONS[0])
    assert served.rewarded(history, None) is history
    assert served.rewarded(history, "no rewards") is history


# --- what is seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "steps"),
    [
        (0, 0),
        (-1, -1),
        (-3, -3),
        ([0], [0]),
        ([-1], [-1]),
        ([-1, 0], [-1, 0]),
        ("-3:0", [-3, -2, -1, 0]),
        ("-3:-1", [-3, -2, -1]),
        ([0, -3], [0, -3]),
        ([-2, -2], [-2, -2]),
        ([-1, -3], [-1, -3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("depth", [1, 4])
def test_past_observations_are_seen_by_their_shifts(shift, steps, depth):
    served = views(x=view("obs", shift), other=view("obs", -depth))
    seen = served.see(after(served, 4), OBS[4])["x"]
    expected = (
        OBS[4 + steps] if isinstance(steps, int) else np.stack([OBS[4 + step] for step in steps], 1)
    )
    np.testing.assert_array_equal(seen, expected)


def test_steps_are_counted_from_the_beginning_of_an_episode():
    served = views(
        now=view("t"), before=view("t", -1), several=view("t", [-4, -1, 0]), one=view("t", [0])
    )
    history = served.restart(after(served, 3), [1])
    seen = served.see(history, OBS[3])
    assert seen["now"].tolist() == [3, 0]
    assert seen["before"].tolist() == [2, 0]
    assert seen["several"].tolist() == [[0, 2, 3], [0, 0, 0]]
    assert seen["one"].tolist() == [[3], [0]]


def test_composite_actions_are_seen_flat_or_as_a_structure():
    raw = np.float32([[[3, 0.1, 0.2], [1, 0.3, 0.4]]])
    for flat in (True, False):
        served = views(BOTH, flat, x=view("actions", -1), y=view("actions", [-1]))
        seen = served.see(after(served, 1, raw), OBS[1])
        if flat:
            np.testing.assert_array_equal(seen["x"], raw[0])
            np.testing.assert_array_equal(seen["y"], raw[0][:, None])
        else:
            np.testing.assert_array_equal(seen["x"][0], [3, 1])
            np.testing.assert_array_equal(seen["x"][1], raw[0][:, 1:])
            np.testing.assert_array_equal(seen["y"][0], [[3], [1]])
    for flat in (True, False):  # a single space is always seen in its own shape
        served = views(
            FOUR, flat, x=view("actions", -1), y=view("obs", -1), z=view("action_inputs", -1)
        )
        seen = served.see(after(served, 2), OBS[2])
        assert seen["x"].tolist() == ACTIONS[1, :, 0].tolist()
        np.testing.assert_array_equal(seen["y"], OBS[1])
        np.testing.assert_array_equal(seen["z"], np.eye(4)[ACTIONS[1, :, 0]])


class Reader:
    """Another reader of raw actions, as a framework's trace has one."""

    def shown(self, raw):
        return raw + 100

    def inputs(self, raw):
        return np.zeros((len(raw), 4), np.float32) + raw


def test_another_reader_of_actions_takes_the_codecs_place():
    served = views(x=view("actions", -1), y=view("action_inputs", -1))
    history = served.after(served.start(ROWS), OBS[0], ACTIONS[0], actions=Reader())
    np.testing.assert_array_equal(
        history.windows["action_inputs"][:, 0], np.repeat(ACTIONS[0], 4, 1)
    )
    seen = served.see(history, OBS[1], actions=Reader())
    np.testing.assert_array_equal(seen["x"], ACTIONS[0] + 100)
    np.testing.assert_array_equal(served.see(history, OBS[1])["x"], ACTIONS[0, :, 0])


def test_future_composite_actions_are_shown_too():
    raw = np.float32([[[3, 0.1, 0.2]], [[1, 0.3, 0.4]]])
    ended = np.zeros((2, 1), bool)
    flat = views(BOTH, True, x=ahead("actions", 1), y=ahead("actions", [0, 1])).look_ahead(
        {"actions": raw}, ended
    )
    np.testing.assert_array_equal(flat["x"], [raw[1], 0 * raw[1]])
    np.testing.assert_array_equal(flat["y"][0], np.stack([raw[0], raw[1]], 1))
    nested = views(BOTH, False, x=ahead("actions", 1)).look_ahead({"actions": raw}, ended)
    np.testing.assert_array_equal(nested["x"][0], [[1], [0]])
    np.testing.assert_array_equal(nested["x"][1], [raw[1, :, 1:], [[0, 0]]])


# --- rewards --------------------------------------------------------------------------------------


def test_rewards_count_once_an_episode_has_begun():
    assert checked_reward(None, np.array([0, 0]), "Model") is None
    for t in ([1, 0], [0, 2], [1, 1]):
        with pytest.raises(
            ModelContractError,
            match="Model requests past rewards: pass the last step's rewards as pr",
        ):
            checked_reward(None, np.array(t), "Model")
    rewards = checked_reward([1.5, np.nan, 3], np.array([1, 0, 2]), "Model")
    # What is not finite, too, counts only in an episode that goes on.
    assert rewards.tolist() == [1.5, 0, 3]
    assert rewards.dtype == np.float32
    for dtype in (bool, np.uint8, np.int64, np.float16, np.float64):
        assert checked_reward(np.ones(2, dtype), np.array([0, 1]), "Model").tolist() == [0, 1]


@pytest.mark.parametrize(
    "reward", [1.0, [1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0], ["a", "b"], [1j, 1j], ["a"]], ids=repr
)
def test_other_rewards_are_refused(reward):
    given = np.asarray(reward)
    with pytest.raises(ModelContractError) as caught:
        checked_reward(reward, np.array([1, 1]), "Model")
    expected = (
        f"expected 2 numbers, one for each row, found shape {given.shape}, dtype {given.dtype}."
    )
    assert str(caught.value) == f"prev_reward: {expected}"


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "NaN"), (-np.inf, "-inf"), (1e300, "inf")])
def test_rewards_that_are_not_finite_are_refused(value, shown):
    expected = (
        rf"row 1 of 2: prev_reward is {shown}: look at the environment's reward \(after 4"
        r" steps of its episode"
    )
    with pytest.raises(NonFiniteError, match=expected):
        checked_reward(np.array([1.0, value]), np.array([3, 4]), "Model")
