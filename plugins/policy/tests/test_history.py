"""Views of an episode's past and future steps: which there are, what they show, and which steps the
history keeps for them.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo, ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import ModelContractError, NonFiniteError, NotServedError
from rlcatalog_policy import check_reward
from rlcatalog_policy.history import Views

FOUR_ACTIONS = spaces.Discrete(4)
TWO_NUMBERS = spaces.Box(-1, 1, (2,), np.float32)
CHOICE_AND_NUMBERS = spaces.Tuple([FOUR_ACTIONS, TWO_NUMBERS])


def make_views(action_space=FOUR_ACTIONS, *, flat_actions=True, **requirements):
    """Return the views that a model requests; its observations have two numbers."""
    codec = action_codec(SpaceInfo.read(action_space, "action"))
    return Views(requirements, (2,), np.float32, codec, flat_actions, "Model")


def training_view(column=None, **options):
    """Return the requirement of a view that the model sees only in training."""
    return ViewRequirement(column, used_for_compute_actions=False, **options)


def obs_at(step):
    """Return the observations of two episodes; their first numbers are 3 and 103 in step 3."""
    return np.float32([[step, 0.5], [100 + step, 0.5]])


#: The first action in both of two episodes.
NO_ACTIONS = np.array([[0], [0]])


def take_steps(views, *, last):
    """Return the history after the steps 1 to `last` of two episodes, in which nothing happens but
    the observations of `obs_at`.
    """
    history = views.start(2)
    for step in range(1, last + 1):
        history = views.after(history, obs_at(step), NO_ACTIONS)
        history = views.rewarded(history, [0, 0])
    return history


# --- requested views ------------------------------------------------------------------------------


past_views = pytest.mark.parametrize(
    ("column", "shift"),
    [
        ("obs", 0),
        ("obs", -1),
        ("obs", [-2, 0]),
        ("t", 0),
        ("t", -3),
        ("actions", -1),
        ("actions", [-2, -1]),
        ("rewards", -1),
        ("action_inputs", -2),
    ],
)


@past_views
def test_view_into_the_past_is_served_while_acting(column, shift):
    views = make_views(x=ViewRequirement(column, shift=shift))

    assert views.acting_names == ("x",)
    assert views.ahead == []


@past_views
def test_view_into_the_past_may_be_for_training_alone(column, shift):
    views = make_views(x=training_view(column, shift=shift))

    assert views.acting_names == ()
    assert views.ahead == []


future_views = pytest.mark.parametrize(
    ("column", "shift"),
    [
        ("obs", 1),
        ("obs", [0, 2]),
        ("t", 1),
        ("actions", 0),
        ("actions", [0, 1]),
        ("rewards", 0),
        ("action_inputs", 0),
        ("new_obs", 0),
        ("vf_preds", 1),
        ("terminateds", 0),
        ("dones", 0),
    ],
)


@future_views
def test_view_into_the_future_is_served_in_training(column, shift):
    views = make_views(x=training_view(column, shift=shift))

    assert [view.name for view in views.ahead] == ["x"]
    assert views.acting_names == ()


@future_views
def test_view_into_the_future_is_rejected_for_acting(column, shift):
    with pytest.raises(NotServedError, match="Model requests the view 'x'") as caught:
        make_views(x=ViewRequirement(column, shift=shift))

    assert "which is not known when it acts; pass used_for" in str(caught.value)


def test_view_of_an_added_column_is_served_in_training():
    views = make_views(x=training_view("added_by_a_loop"))

    assert [view.name for view in views.ahead] == ["x"]
    assert views.acting_names == ()


@pytest.mark.parametrize("shift", [0, -1])
def test_view_of_an_added_column_is_rejected_for_acting(shift):
    with pytest.raises(NotServedError, match="Model requests the view 'x'") as caught:
        make_views(x=ViewRequirement("added_by_a_loop", shift=shift))

    columns = "into the column 'added_by_a_loop'; expected one of obs, actions, action_inputs, r"
    assert columns in str(caught.value)


@pytest.mark.parametrize(
    ("column", "shift"),
    [("obs", [-1, 1]), ("actions", "-1:0"), ("rewards", [-3, 0]), ("new_obs", -1)],
)
def test_view_into_both_past_and_future_is_rejected(column, shift):
    with pytest.raises(NotServedError, match="a view looks either back or ahead"):
        make_views(x=training_view(column, shift=shift))


def test_current_observation_and_states_are_not_views():
    views = make_views(
        obs=ViewRequirement(),
        state_in_0=ViewRequirement("state_out_0", shift=-1),
        state_out_0=ViewRequirement(),
    )

    assert not views
    assert views.all == []


def test_current_observation_as_list_of_one_step_is_not_a_view():
    assert not make_views(obs=ViewRequirement("obs", shift=[0]))


@pytest.mark.parametrize(
    ("name", "requirement"),
    [
        pytest.param("obs", ViewRequirement("obs", shift=-1), id="past-observation"),
        pytest.param("obs", ViewRequirement("rewards", shift=-1), id="another-column"),
        pytest.param("now", ViewRequirement("obs"), id="another-name"),
    ],
)
def test_other_uses_of_the_observation_are_views(name, requirement):
    views = make_views(**{name: requirement})

    assert views
    assert views.acting_names == (name,)


def test_views_are_grouped_by_when_the_model_sees_them():
    views = make_views(
        for_acting=ViewRequirement("obs", shift=-1, used_for_training=False),
        for_training=training_view("rewards", shift=-1, batch_repeat_value=3),
        for_both=ViewRequirement("t"),
        future=training_view("obs", shift=1, batch_repeat_value=2),
    )

    assert views.acting_names == ("for_acting", "for_both")
    # The numbers are those of batch_repeat_value, which is 1 by default.
    assert views.training_repeats == {"for_training": 3, "for_both": 1, "future": 2}


def test_see_returns_all_views_except_those_of_the_future():
    views = make_views(
        past=ViewRequirement("obs", shift=-1),
        past_for_training=training_view("rewards", shift=-1),
        future=training_view("obs", shift=1),
    )

    seen = views.see(views.start(2), obs_at(1))

    assert set(seen) == {"past", "past_for_training"}


@pytest.mark.parametrize(
    ("name", "data_col", "shift", "column", "shifts", "is_single"),
    [
        # RLlib's names with "prev_" mean the step before, also without a shift.
        ("prev_actions", None, 0, "actions", (-1,), True),
        ("prev_actions", None, -1, "actions", (-1,), True),
        ("x", "prev_action", -2, "actions", (-2,), True),
        ("x", "prev_rewards", [0], "rewards", (-1,), False),
        ("prev_reward", None, [-3, -1], "rewards", (-3, -1), False),
        # The singular means the same column, and data_col counts more than the name.
        ("x", "action", -1, "actions", (-1,), True),
        ("reward", None, -1, "rewards", (-1,), True),
        ("rewards", "obs", -1, "obs", (-1,), True),
        # Only a plain number is a single step.
        ("x", "obs", "-2:0", "obs", (-2, -1, 0), False),
        ("x", "obs", "-1:-1", "obs", (-1,), False),
        ("x", "obs", np.int64(-2), "obs", (-2,), True),
        ("x", "t", (-2, 0), "t", (-2, 0), False),
    ],
)
def test_requirement_is_read_as_in_rllib(name, data_col, shift, column, shifts, is_single):
    requirement = ViewRequirement(data_col, shift=shift)

    [view] = make_views(**{name: requirement}).all

    assert view.name == name
    assert view.column == column
    assert view.shifts == shifts
    assert view.is_single_step is is_single


# --- the history ----------------------------------------------------------------------------------


def test_window_is_as_long_as_the_longest_view():
    views = make_views(
        two_steps_back=ViewRequirement("obs", shift=-2),
        four_steps_back=ViewRequirement("obs", shift=[-4, -1]),
        this_step=ViewRequirement("obs", shift=0),
    )

    # Four steps of two numbers.
    assert views.windows == {"obs": (4, (2,), np.float32)}


def test_actions_and_rewards_have_windows():
    views = make_views(
        last_three_actions=ViewRequirement("actions", shift="-3:-1"),
        last_reward=training_view("rewards", shift=-1),
    )

    # Column → number of steps, shape and dtype of one value.
    assert views.windows == {"actions": (3, (1,), np.int64), "rewards": (1, (), np.float32)}


@pytest.mark.parametrize(
    "requirement",
    [
        pytest.param(ViewRequirement("obs", shift=0), id="current-step"),
        pytest.param(ViewRequirement("t", shift=-1), id="step-count"),
        pytest.param(training_view("rewards", shift=1), id="future"),
    ],
)
def test_other_views_need_no_windows(requirement):
    assert make_views(x=requirement).windows == {}


def test_rewards_are_read_for_views_of_past_rewards():
    assert make_views(a=training_view("rewards", shift=-1)).reads_rewards


@pytest.mark.parametrize(
    "requirement",
    [ViewRequirement("obs", shift=-1), training_view("rewards", shift=1)],
    ids=["past-observation", "future-reward"],
)
def test_rewards_are_not_read_for_other_views(requirement):
    assert not make_views(a=requirement).reads_rewards


@pytest.mark.parametrize(
    ("action_space", "width", "dtype", "input_width"),
    [
        # A model's input of an action is one-hot where the action is a choice.
        pytest.param(spaces.Discrete(4), 1, np.int64, 4, id="discrete"),
        pytest.param(spaces.Box(-1, 1, (2,)), 2, np.float32, 2, id="box"),
        pytest.param(CHOICE_AND_NUMBERS, 1 + 2, np.float32, 4 + 2, id="tuple-of-both"),
    ],
)
def test_windows_of_actions_fit_their_space(action_space, width, dtype, input_width):
    views = make_views(
        action_space,
        last_action=ViewRequirement("actions", shift=-1),
        last_input=ViewRequirement("action_inputs", shift=-1),
    )

    # Column → number of steps, shape and dtype of one value.
    assert views.windows == {
        "actions": (1, (width,), dtype),
        "action_inputs": (1, (input_width,), np.float32),
    }


def test_history_starts_with_zeros():
    views = make_views(
        last_four_obs=ViewRequirement("obs", shift="-4:-1"),  # of two numbers each
        last_three_actions=ViewRequirement("actions", shift="-3:-1"),
        last_reward=ViewRequirement("rewards", shift=-1),
    )

    history = views.start(5)

    np.testing.assert_array_equal(history.windows["obs"], np.zeros((5, 4, 2)))
    np.testing.assert_array_equal(history.windows["actions"], np.zeros((5, 3, 1)))
    np.testing.assert_array_equal(history.windows["rewards"], np.zeros((5, 1)))
    assert history.t.tolist() == [0, 0, 0, 0, 0]


def test_step_is_appended_to_the_windows():
    views = make_views(
        last_two_obs=ViewRequirement("obs", shift="-2:-1"),
        last_two_actions=ViewRequirement("actions", shift="-2:-1"),
        last_input=ViewRequirement("action_inputs", shift=-1),
        last_reward=ViewRequirement("rewards", shift=-1),
    )
    obs = np.float32([[1, 2], [3, 4]])
    actions = np.array([[3], [1]])

    history = views.after(views.start(2), obs, actions)

    assert history.t.tolist() == [1, 1]
    assert history.windows["obs"].tolist() == [[[0, 0], [1, 2]], [[0, 0], [3, 4]]]
    assert history.windows["actions"].tolist() == [[[0], [3]], [[0], [1]]]
    # The inputs of the actions 3 and 1 are one-hot.
    assert history.windows["action_inputs"].tolist() == [[[0, 0, 0, 1]], [[0, 1, 0, 0]]]
    assert history.windows["rewards"].tolist() == [[0], [0]]  # the reward is not yet known


def test_reward_is_appended_to_its_window_alone():
    views = make_views(
        last_obs=ViewRequirement("obs", shift=-1),
        last_two_rewards=ViewRequirement("rewards", shift="-2:-1"),
    )
    before = take_steps(views, last=1)

    history = views.rewarded(before, [0.5, 2])

    assert history.windows["rewards"].tolist() == [[0, 0.5], [0, 2]]
    assert history.windows["obs"] is before.windows["obs"]


def test_history_keeps_the_last_steps():
    views = make_views(last_two_rewards=ViewRequirement("rewards", shift="-2:-1"))
    history = views.start(2)

    for t in range(1, 5):
        history = views.after(history, obs_at(t), NO_ACTIONS)
        history = views.rewarded(history, [t, 10 * t])

    assert history.t.tolist() == [4, 4]
    assert history.windows["rewards"].tolist() == [[3, 4], [30, 40]]


@pytest.mark.parametrize("rows", [[1], np.array([False, True])], ids=["indices", "booleans"])
def test_restart_clears_the_history_of_the_given_rows(rows):
    views = make_views(last_reward=ViewRequirement("rewards", shift=-1))
    history = take_steps(views, last=3)
    history = views.rewarded(history, [5, 6])

    restarted = views.restart(history, rows)

    assert restarted.t.tolist() == [3, 0]
    assert restarted.windows["rewards"].tolist() == [[5], [0]]
    assert history.windows["rewards"].tolist() == [[5], [6]]  # unchanged


@pytest.mark.parametrize("rewards", [None, "no rewards"])
def test_unneeded_rewards_are_ignored(rewards):
    views = make_views(a=ViewRequirement("obs", shift=-1))
    history = views.after(views.start(2), obs_at(1), NO_ACTIONS)

    assert views.rewarded(history, rewards) is history


def test_rewards_are_required_in_a_running_episode():
    views = make_views(a=ViewRequirement("rewards", shift=-1))
    history = views.after(views.start(2), obs_at(1), NO_ACTIONS)
    history = views.restart(history, [1])

    with pytest.raises(ModelContractError, match="requests past rewards: pass the last"):
        views.rewarded(history, None)


def test_rewards_are_optional_before_the_first_step():
    views = make_views(a=ViewRequirement("rewards", shift=-1))
    history = views.start(2)

    assert views.rewarded(history, None) is history


def test_reward_of_an_episode_that_just_began_is_ignored():
    views = make_views(a=ViewRequirement("rewards", shift=-1))
    history = views.after(views.start(2), obs_at(1), NO_ACTIONS)
    history = views.restart(history, [1])

    history = views.rewarded(history, [2.5, 7.0])

    assert views.see(history, obs_at(2))["a"].tolist() == [2.5, 0]


# --- what views show ------------------------------------------------------------------------------


keep_one_or_four_steps = pytest.mark.parametrize("kept_steps", [1, 4])


@pytest.mark.parametrize(("shift", "step"), [(0, 5), (-1, 4), (-3, 2)])
@keep_one_or_four_steps
def test_view_of_a_single_step_shows_its_observation(shift, step, kept_steps):
    views = make_views(
        x=ViewRequirement("obs", shift=shift),
        other=ViewRequirement("obs", shift=-kept_steps),  # lets the history keep more steps
    )
    history = take_steps(views, last=4)

    seen = views.see(history, obs_at(5))

    np.testing.assert_array_equal(seen["x"], obs_at(step))


@pytest.mark.parametrize(
    ("shift", "steps"),
    [
        ([0], [5]),
        ([-1], [4]),
        ([-1, 0], [4, 5]),
        ("-3:0", [2, 3, 4, 5]),
        ("-3:-1", [2, 3, 4]),
        ([0, -3], [5, 2]),
        ([-2, -2], [3, 3]),
    ],
    ids=str,
)
@keep_one_or_four_steps
def test_view_of_several_steps_shows_their_observations(shift, steps, kept_steps):
    views = make_views(
        x=ViewRequirement("obs", shift=shift),
        other=ViewRequirement("obs", shift=-kept_steps),  # lets the history keep more steps
    )
    history = take_steps(views, last=4)

    seen = views.see(history, obs_at(5))

    # The first number of an observation is its step in one episode, 100 more in the other one.
    assert seen["x"][0, :, 0].tolist() == steps
    assert seen["x"][1, :, 0].tolist() == [100 + step for step in steps]


@pytest.mark.parametrize(
    ("shift", "after_three_steps", "after_restart"),
    [
        (0, 3, 0),
        (-1, 2, 0),
        ([-4, -1, 0], [0, 2, 3], [0, 0, 0]),
        ([0], [3], [0]),
    ],
    ids=str,
)
def test_view_of_t_counts_the_steps_of_the_episode(shift, after_three_steps, after_restart):
    views = make_views(x=ViewRequirement("t", shift=shift))
    history = views.restart(take_steps(views, last=3), [1])

    seen = views.see(history, obs_at(4))

    assert seen["x"].tolist() == [after_three_steps, after_restart]


def test_tuple_actions_are_seen_flat_by_default():
    choice_and_numbers = spaces.Tuple([spaces.Discrete(4), spaces.Box(-1, 1, (2,))])
    views = make_views(
        choice_and_numbers,
        last=ViewRequirement("actions", shift=-1),
        list_of_last=ViewRequirement("actions", shift=[-1]),
    )
    actions = np.float32([[3, 0.5, 0.25], [1, -0.5, -0.25]])
    history = views.after(views.start(2), obs_at(1), actions)

    seen = views.see(history, obs_at(2))

    assert seen["last"].tolist() == [[3, 0.5, 0.25], [1, -0.5, -0.25]]
    assert seen["list_of_last"].tolist() == [[[3, 0.5, 0.25]], [[1, -0.5, -0.25]]]


def test_tuple_actions_are_seen_as_a_structure_on_request():
    choice_and_numbers = spaces.Tuple([spaces.Discrete(4), spaces.Box(-1, 1, (2,))])
    views = make_views(
        choice_and_numbers,
        flat_actions=False,
        last=ViewRequirement("actions", shift=-1),
        list_of_last=ViewRequirement("actions", shift=[-1]),
    )
    actions = np.float32([[3, 0.5, 0.25], [1, -0.5, -0.25]])
    history = views.after(views.start(2), obs_at(1), actions)

    seen = views.see(history, obs_at(2))

    last_choices, last_numbers = seen["last"]
    assert last_choices.tolist() == [3, 1]
    assert last_numbers.tolist() == [[0.5, 0.25], [-0.5, -0.25]]
    lists_of_choices, _ = seen["list_of_last"]
    assert lists_of_choices.tolist() == [[3], [1]]


@pytest.mark.parametrize("flat_actions", [True, False], ids=["flat", "structure"])
def test_discrete_actions_are_seen_as_plain_numbers(flat_actions):
    views = make_views(
        spaces.Discrete(4),
        flat_actions=flat_actions,
        action=ViewRequirement("actions", shift=-1),
        one_hot=ViewRequirement("action_inputs", shift=-1),
    )
    # Raw actions have a column, which the numbers of a Discrete space have not.
    history = views.after(views.start(2), obs_at(1), np.array([[2], [3]]))

    seen = views.see(history, obs_at(2))

    assert seen["action"].tolist() == [2, 3]
    assert seen["one_hot"].tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]


class ReaderOfTensors:
    """Stands for the reader of raw actions inside a framework's trace."""

    def shown(self, raw):
        return raw + 100

    def inputs(self, raw):
        return raw + np.float32([0.1, 0.2, 0.3, 0.4])


def test_given_reader_computes_the_inputs_of_actions():
    views = make_views(x=ViewRequirement("action_inputs", shift=-1))
    actions = np.array([[3], [1]])

    history = views.after(views.start(2), obs_at(1), actions, actions=ReaderOfTensors())

    expected = np.float32([[3.1, 3.2, 3.3, 3.4], [1.1, 1.2, 1.3, 1.4]])
    np.testing.assert_allclose(history.windows["action_inputs"][:, 0], expected, rtol=1e-6)


def test_given_reader_computes_the_view_of_actions():
    views = make_views(x=ViewRequirement("actions", shift=-1))
    history = views.after(views.start(2), obs_at(1), np.array([[3], [1]]))

    seen = views.see(history, obs_at(2), actions=ReaderOfTensors())
    seen_without_reader = views.see(history, obs_at(2))

    assert seen["x"].tolist() == [[103], [101]]
    assert seen_without_reader["x"].tolist() == [3, 1]


# --- views of later steps -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (1, [2, 0, 4, 5, 0]),
        (2, [0, 0, 5, 0, 0]),
        (5, [0, 0, 0, 0, 0]),
        ([1, 3], [[2, 0], [0, 0], [4, 0], [5, 0], [0, 0]]),
        ("0:2", [[1, 2, 0], [2, 0, 0], [3, 4, 5], [4, 5, 0], [5, 0, 0]]),
        ("0:4:2", [[1, 0, 0], [2, 0, 0], [3, 5, 0], [4, 0, 0], [5, 0, 0]]),
    ],
)
def test_view_of_later_steps_ends_with_the_episode(shift, expected):
    views = make_views(later=training_view("rewards", shift=shift))
    # Five steps of one environment, whose episode ends with the second one.
    rewards = np.float32([[1], [2], [3], [4], [5]])
    ended = np.array([[False], [True], [False], [False], [False]])

    later = views.look_ahead({"rewards": rewards}, ended)["later"]

    assert later[:, 0].tolist() == expected
    assert later.dtype == np.float32


def test_view_of_later_observations_is_of_the_same_environment():
    views = make_views(later=training_view("obs", shift=1))
    # Three steps of two environments; the episode of the second one ends with its first step.
    obs = np.float32([[[1, 2], [10, 20]], [[3, 4], [30, 40]], [[5, 6], [50, 60]]])
    ended = np.array([[False, True], [False, False], [False, False]])

    later = views.look_ahead({"obs": obs}, ended)["later"]

    assert later.tolist() == [[[3, 4], [0, 0]], [[5, 6], [50, 60]], [[0, 0], [0, 0]]]


def test_later_discrete_actions_are_seen_without_their_axis():
    views = make_views(spaces.Discrete(4), later=training_view("actions", shift=1))
    two_steps_of_one_environment = np.array([[[2]], [[3]]])
    ended = np.array([[False], [False]])

    seen = views.look_ahead({"actions": two_steps_of_one_environment}, ended)

    assert seen["later"].tolist() == [[3], [0]]


def test_view_ahead_reads_an_added_column():
    views = make_views(next_value=training_view("mine", shift=1))
    column = np.array([[0.0, 1], [2, 3], [4, 5]])  # three steps of two environments
    never_ended = np.zeros((3, 2), bool)

    seen = views.look_ahead({"mine": column}, never_ended)["next_value"]

    assert seen.tolist() == [[2, 3], [4, 5], [0, 0]]


def test_view_ahead_into_a_missing_column_is_an_error():
    views = make_views(next_reward=training_view("rewards", shift=1))
    columns = {"obs": np.zeros((3, 1, 2)), "actions": np.zeros((3, 1, 1))}

    with pytest.raises(NotServedError, match="view 'next_reward' into 'rewards'") as caught:
        views.look_ahead(columns, np.zeros((3, 1), bool))

    assert "The rollout has actions, obs" in str(caught.value)


def test_later_tuple_actions_are_seen_flat_by_default():
    views = make_views(CHOICE_AND_NUMBERS, next=training_view("actions", shift=1))
    # Two steps of one environment, whose episode goes on.
    actions = np.float32([[[3, 0.5, 0.25]], [[1, -0.5, -0.25]]])
    ended = np.array([[False], [False]])

    seen = views.look_ahead({"actions": actions}, ended)

    # The action after the second step is not known.
    assert seen["next"].tolist() == [[[1, -0.5, -0.25]], [[0, 0, 0]]]


def test_later_tuple_actions_are_seen_as_a_structure_on_request():
    next_action = training_view("actions", shift=1)
    views = make_views(CHOICE_AND_NUMBERS, flat_actions=False, next=next_action)
    # Two steps of one environment, whose episode goes on.
    actions = np.float32([[[3, 0.5, 0.25]], [[1, -0.5, -0.25]]])
    ended = np.array([[False], [False]])

    seen = views.look_ahead({"actions": actions}, ended)

    # The action after the second step is not known.
    choices, numbers = seen["next"]
    assert choices.tolist() == [[1], [0]]
    assert numbers.tolist() == [[[-0.5, -0.25]], [[0, 0]]]


# --- checks of rewards ----------------------------------------------------------------------------


def test_rewards_may_be_missing_while_all_episodes_begin():
    assert check_reward(None, t=np.array([0, 0]), who="Model") is None


@pytest.mark.parametrize("t", [[1, 0], [0, 2], [1, 1]], ids=str)
def test_missing_rewards_of_a_running_episode_are_an_error(t):
    with pytest.raises(ModelContractError, match="last step's rewards as prev_reward="):
        check_reward(None, t=np.array(t), who="Model")


def test_rewards_are_zero_where_an_episode_begins():
    # Even a NaN is accepted in the second row, because its episode begins.
    rewards = check_reward([1.5, np.nan, 3], t=np.array([1, 0, 2]), who="Model")

    assert rewards.tolist() == [1.5, 0, 3]
    assert rewards.dtype == np.float32


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, np.float64])
def test_rewards_may_have_any_real_dtype(dtype):
    rewards = check_reward(np.ones(2, dtype), t=np.array([0, 1]), who="Model")

    assert rewards.tolist() == [0, 1]


@pytest.mark.parametrize(
    "reward",
    [1.0, [1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0], ["a", "b"], [1j, 1j], ["a"]],
    ids=repr,
)
def test_rewards_that_are_not_two_numbers_are_an_error(reward):
    with pytest.raises(ModelContractError) as caught:
        check_reward(reward, t=np.array([1, 1]), who="Model")

    array = np.asarray(reward)
    assert str(caught.value) == (
        "prev_reward: expected 2 numbers, one for each row,"
        f" found shape {array.shape}, dtype {array.dtype}."
    )


@pytest.mark.parametrize(
    ("reward", "description"),
    [(np.nan, "NaN"), (-np.inf, "-inf"), (1e300, "inf")],  # 1e300 exceeds float32
)
def test_non_finite_reward_error_names_row_and_step(reward, description):
    with pytest.raises(NonFiniteError, match=f"1 of 2: prev_reward is {description}") as caught:
        check_reward(np.array([1.0, reward]), t=np.array([3, 4]), who="Model")

    message = str(caught.value)
    assert message.startswith("row 1 of 2")
    assert "look at the environment's reward (after 4 steps of its episode" in message
