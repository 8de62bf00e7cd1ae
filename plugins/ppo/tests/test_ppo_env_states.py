"""`Resumable` as a keeper of state: how it saves an environment's state, and restores it."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import deque

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, TimeLimit

from rlcatalog_ppo import env_state
from rlcatalog_ppo.env_state import Resumable, fingerprint
from rlcatalog_ppo.trees import put_together, take_apart


class RandomWalk(gym.Env):
    """Adds its action and a random number to its observation; the observation is also its reward.

    It reuses one array for all observations.

    Args:
        steps: Length of an episode.
        truncates: Whether an episode is truncated at its end; otherwise it terminates.
        info: The info of each step.
        draws: How many random numbers are added in each step.
    """

    observation_space = spaces.Box(-99, 99, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, steps=4, truncates=False, info=None, draws=1):
        self.steps = steps
        self.truncates = truncates
        self.info = info or {}
        self.draws = draws
        self.obs = np.zeros(1, np.float32)
        self.reset_options = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.reset_options.append(options)
        self.t = 0
        self.obs[:] = self.np_random.random()
        return self.obs, {}

    def step(self, action):
        self.t += 1
        self.obs += float(np.sum(action)) + self.np_random.random(self.draws).sum()
        is_over = self.t == self.steps
        terminated = is_over and not self.truncates
        truncated = is_over and self.truncates
        return self.obs, float(self.obs[0]), terminated, truncated, dict(self.info)


class ReportsState(RandomWalk):
    """Reports its state, without its generator's."""

    def get_state(self):
        return {"t": self.t, "x": self.obs}

    def set_state(self, state):
        self.t = state["t"]
        self.obs[:] = state["x"]


class PlainWrapper(gym.Wrapper):
    """A wrapper that does not report its state."""


def play(env, actions, *, seed=3):
    """Begin an episode in an environment, take these actions, and return the environment."""
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
    return env


def save_and_load(place):
    """Return a place as a checkpoint returns it."""
    arrays = {}
    tree = take_apart(place, arrays)
    return put_together(json.loads(json.dumps(tree)), arrays)


# --- replays --------------------------------------------------------------------------------------


class WithTwoActions(RandomWalk):
    action_space = spaces.MultiDiscrete([3, 3])


def test_replay_continues_the_episode():
    env = Resumable(WithTwoActions(steps=9))
    play(env, actions=[np.array([2, 1]), np.array([2, 1])])
    place = save_and_load(env.resume_state())  # as in a checkpoint

    other = Resumable(WithTwoActions(steps=9))
    failure = other.resume_from([place])

    assert failure is None
    np.testing.assert_array_equal(other.obs, env.obs)
    # Both draw the same random numbers from here on.
    env.step(np.array([1, 1]))
    other.step(np.array([1, 1]))
    np.testing.assert_array_equal(other.obs, env.obs)


def test_replay_does_not_depend_on_arrays_of_the_caller():
    env = Resumable(WithTwoActions(steps=9))
    action = np.array([2, 1])
    play(env, actions=[action, action])

    action[:] = 0

    assert save_and_load(env.resume_state())["actions"] == [[2, 1], [2, 1]]


def test_replay_does_not_depend_on_options_of_the_caller():
    env = Resumable(RandomWalk())
    options = {"a": [1]}
    env.reset(seed=1, options=options)
    options["a"].append(2)  # after the reset, so it must not matter
    place = save_and_load(env.resume_state())

    other = Resumable(RandomWalk())
    reason_of_failure = other.resume_from([place])

    assert reason_of_failure is None
    assert other.unwrapped.reset_options == [{"a": [1]}]


@pytest.fixture(params=[False, True], ids=["terminated", "truncated"])
def truncates(request):
    """Whether episodes are truncated at their end."""
    return request.param


@pytest.fixture
def place_in_second_episode(truncates):
    """The place after the first step of a second episode; the first one had three steps."""
    env = play(Resumable(RandomWalk(steps=3, truncates=truncates)), actions=[1, 2, 0])
    env.reset()
    env.step(2)
    return save_and_load(env.resume_state())


def test_place_has_the_former_and_the_present_episode(place_in_second_episode):
    assert place_in_second_episode["before"]["actions"] == [1, 2, 0]
    assert place_in_second_episode["actions"] == [2]
    # The last observation of the former episode is not compared.
    assert "seen" not in place_in_second_episode["before"]


def test_former_episode_is_replayed_as_well(place_in_second_episode, truncates):
    other = Resumable(RandomWalk(steps=3, truncates=truncates))

    assert other.resume_from([place_in_second_episode]) is None
    assert save_and_load(other.resume_state()) == place_in_second_episode


def test_replay_fails_if_the_episode_ends_too_early(place_in_second_episode, truncates):
    shorter = Resumable(RandomWalk(steps=2, truncates=truncates))

    failure = shorter.resume_from([place_in_second_episode])

    assert failure == "its replayed episode ends after 2 of 3 steps"


def test_replay_fails_if_the_episode_does_not_end(place_in_second_episode, truncates):
    longer = Resumable(RandomWalk(steps=5, truncates=truncates))

    failure = longer.resume_from([place_in_second_episode])

    assert failure == "its replayed episode has different rewards or a different end"


def test_replay_fails_if_the_episode_ends_in_another_way(place_in_second_episode, truncates):
    ends_differently = Resumable(RandomWalk(steps=3, truncates=not truncates))

    failure = ends_differently.resume_from([place_in_second_episode])

    assert failure == "its replayed episode has different rewards or a different end"


def play_two_episodes_and_reset():
    env = play(Resumable(RandomWalk(steps=2)), actions=[1, 1])
    play(env, actions=[0, 0], seed=None)
    env.reset()
    return env


def test_place_has_only_the_last_former_episode():
    place = play_two_episodes_and_reset().resume_state()

    assert place["before"]["actions"] == [0, 0]
    assert "before" not in place["before"]


def test_place_in_the_first_episode_has_no_former_one():
    env = play(Resumable(RandomWalk(steps=2)), actions=[1])

    assert "before" not in env.resume_state()


def test_replay_fails_if_the_generator_differs_between_episodes():
    place = copy.deepcopy(play_two_episodes_and_reset().resume_state())
    place["begun"]["generator"]["state"]["state"] += 2

    failure = Resumable(RandomWalk(steps=2)).resume_from([place])

    assert failure == "after a replay of its last episode, its generator is in a different state"


def test_replay_fails_if_the_generator_differs_at_the_end():
    place = copy.deepcopy(play_two_episodes_and_reset().resume_state())
    place["generator"]["state"]["state"] += 2

    failure = Resumable(RandomWalk(steps=2)).resume_from([place])

    assert failure == "after a replay of its episode, its generator is in a different state"


@pytest.mark.parametrize(
    ("info", "names"), [({"level": 2}, "level"), ({"extra": 1}, "extra, level")]
)
def test_replay_fails_if_infos_differ(info, names):
    place = play(Resumable(RandomWalk(info={"level": 1})), actions=[1, 2]).resume_state()
    assert place["infos"].keys() == {"level"}

    failure = Resumable(RandomWalk(info=info)).resume_from([place])

    assert failure == f"its replayed episode has different infos: {names}"


def test_replay_works_if_infos_are_equal():
    place = play(Resumable(RandomWalk(info={"level": 1})), actions=[1, 2]).resume_state()

    assert Resumable(RandomWalk(info={"level": 1})).resume_from([place]) is None


def test_place_of_version_0_1_0_has_no_infos_to_compare():
    place = play(Resumable(RandomWalk(info={"level": 1})), actions=[1, 2]).resume_state()
    del place["outcome"]
    del place["infos"]

    assert Resumable(RandomWalk(info={"level": 2})).resume_from([place]) is None


def test_replay_of_version_0_1_0_still_compares_observations():
    place = play(Resumable(RandomWalk()), actions=[1, 2]).resume_state()
    del place["outcome"]
    del place["infos"]

    failure = Resumable(RandomWalk(draws=2)).resume_from([place])  # its walk differs

    assert failure == "its replayed episode has a different observation"


def test_replay_without_an_observation_still_compares_rewards():
    place = play(Resumable(RandomWalk()), actions=[1, 2]).resume_state()
    del place["seen"]

    failure = Resumable(RandomWalk(draws=2)).resume_from([place])  # its walk differs

    assert failure == "its replayed episode has different rewards or a different end"


def test_failed_replay_restores_the_generator():
    place = play(Resumable(RandomWalk()), actions=[1, 2]).resume_state()
    other = Resumable(RandomWalk(steps=1))

    assert other.resume_from([place]) == "its replayed episode ends after 1 of 2 steps"

    assert other.resume_state()["generator"] == place["generator"]


def test_failed_replay_is_not_an_episode_of_the_run():
    place = play(Resumable(RandomWalk()), actions=[1, 2]).resume_state()
    other = Resumable(RandomWalk(steps=1))
    assert other.resume_from([place]) is not None

    other.reset()

    assert "before" not in other.resume_state()
    assert other.resume_state()["actions"] == []


# --- several environments -------------------------------------------------------------------------


def test_environment_goes_to_the_place_of_its_index():
    place = play(Resumable(RandomWalk()), actions=[2]).resume_state()
    elsewhere = {"generator": {}, "why": "another environment"}
    second = Resumable(RandomWalk(), index=1, count=2)

    assert second.resume_from([elsewhere, place]) is None
    assert second.resume_from([place, elsewhere]) == "another environment"


def test_place_without_an_episode_is_a_failure():
    generator = play(Resumable(RandomWalk()), actions=[2]).resume_state()["generator"]

    failure = Resumable(RandomWalk()).resume_from([{"generator": generator}])

    assert failure.startswith("KeyError: ")


# --- long episodes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("longest", "has_former"), [(9, True), (5, True), (4, False)])
def test_former_episode_is_left_out_if_both_are_too_long(longest, has_former, monkeypatch):
    # The limit is 200,000 steps for the former and the present episode together.
    monkeypatch.setattr(env_state, "_MAX_REPLAYED_STEPS", longest)
    env = play(Resumable(RandomWalk(steps=3)), actions=[1, 1, 1])

    play(env, actions=[0, 0], seed=None)

    assert env.resume_state()["actions"] == [0, 0]
    assert ("before" in env.resume_state()) is has_former


def test_episode_of_the_longest_length_is_replayed(monkeypatch):
    monkeypatch.setattr(env_state, "_MAX_REPLAYED_STEPS", 3)

    env = play(Resumable(RandomWalk(steps=9)), actions=[1, 1, 1])

    assert env.resume_state()["actions"] == [1, 1, 1]


def test_episode_beyond_the_longest_length_is_not_replayed(monkeypatch):
    monkeypatch.setattr(env_state, "_MAX_REPLAYED_STEPS", 3)

    place = play(Resumable(RandomWalk(steps=9)), actions=[1, 1, 1, 1]).resume_state()

    assert place["why"] == "its episode is longer than 3 steps"
    assert "actions" not in place
    assert Resumable(RandomWalk(steps=9)).resume_from([place]) == place["why"]


def test_episode_after_a_long_one_is_replayed(monkeypatch):
    monkeypatch.setattr(env_state, "_MAX_REPLAYED_STEPS", 3)
    env = play(Resumable(RandomWalk(steps=9)), actions=[1, 1, 1, 1])

    env.reset()

    assert env.resume_state()["actions"] == []


def test_options_that_are_not_plain_data_cannot_be_replayed():
    env = Resumable(RandomWalk())
    env.reset(seed=1, options={"x": object()})

    place = env.resume_state()

    assert place["why"].startswith("its actions cannot be saved: TypeError: ")
    assert place.keys() == {"generator", "why"}


# --- environments that report their state ---------------------------------------------------------


def make_limited():
    """Return an environment that reports its state, inside a time limit of seven steps."""
    return Resumable(TimeLimit(ReportsState(steps=99), 7))


def test_reported_state_has_a_level_for_each_wrapper():
    env = play(make_limited(), actions=[1, 2, 1])

    of_time_limit, of_env = env.resume_state()["levels"]

    assert of_time_limit == {"_elapsed_steps": 3}
    assert of_env == {"t": 3, "x": env.obs}


def test_reported_state_is_copied():
    env = play(make_limited(), actions=[1, 2, 1])
    place = env.resume_state()
    before = place["levels"][1]["x"].copy()

    env.step(2)  # overwrites the environment's array

    np.testing.assert_array_equal(place["levels"][1]["x"], before)


def test_reported_state_is_set_with_the_generator():
    env = play(make_limited(), actions=[1, 2, 1])
    other = make_limited()

    assert other.resume_from([save_and_load(env.resume_state())]) is None

    env.step(2)
    other.step(2)
    np.testing.assert_array_equal(other.obs, env.obs)


def test_reported_state_of_a_time_limit_is_set():
    env = play(make_limited(), actions=[1, 2, 1, 2])
    other = make_limited()
    other.resume_from([save_and_load(env.resume_state())])

    truncations = [other.step(0)[3] for _ in range(3)]

    assert truncations == [False, False, True]  # at the seventh step


def test_reported_state_without_a_wrapper_is_a_failure():
    env = play(make_limited(), actions=[1, 2, 1])
    place = env.resume_state()
    place["levels"].pop(0)

    assert make_limited().resume_from([place]) == "its wrappers have changed"


def test_reported_state_does_not_suit_a_replayed_environment():
    reported = play(make_limited(), actions=[1, 2, 1]).resume_state()
    replayed = play(Resumable(RandomWalk()), actions=[1]).resume_state()

    replays = Resumable(TimeLimit(RandomWalk(), 7))
    assert replays.resume_from([reported]) == "its wrappers have changed"
    assert make_limited().resume_from([replayed]) == "its wrappers have changed"


@pytest.mark.parametrize(
    ("state_of_time_limit", "message"),
    [
        ({"_elapsed_steps": "3"}, "ValueError: TimeLimit has no _elapsed_steps of str"),
        ({"_elapsed_steps": True}, "ValueError: TimeLimit has no _elapsed_steps of bool"),
        ({"_max_episode_steps": 3}, "ValueError: TimeLimit has no _max_episode_steps of int"),
        ({"no_such": 3}, "AttributeError: "),
    ],
)
def test_wrapper_takes_only_attributes_that_it_changes_itself(state_of_time_limit, message):
    env = play(make_limited(), actions=[1])
    place = env.resume_state()
    place["levels"][0] = state_of_time_limit

    assert env.resume_from([place]).startswith(message)


class ReturnsCopies(ReportsState):
    """Returns a new array each time, as stacked frames need."""

    def reset(self, **options):
        obs, info = super().reset(**options)
        return obs.copy(), info

    def step(self, action):
        obs, *others = super().step(action)
        return obs.copy(), *others


def test_restored_frame_stack_keeps_its_length():
    env = Resumable(FrameStackObservation(ReturnsCopies(steps=99), stack_size=3))
    play(env, actions=[1, 2], seed=3)
    place = save_and_load(env.resume_state())
    other = Resumable(FrameStackObservation(ReturnsCopies(steps=99), stack_size=3))
    other.reset(seed=8)  # its frames differ

    failure = other.resume_from([place])

    assert failure is None
    frames = other.env.obs_queue  # where Gymnasium keeps the last three observations
    assert type(frames) is deque
    assert frames.maxlen == 3
    obs, *_ = other.step(1)
    expected_obs, *_ = env.step(1)
    np.testing.assert_array_equal(obs, expected_obs)


def test_reported_state_must_be_plain_data():
    class ReportsObject(ReportsState):
        def get_state(self):
            return {"lock": object()}

    env = play(Resumable(ReportsObject()), actions=[1])

    place = env.resume_state()

    # "0/lock" is the entry "lock" of the only environment; wrappers would have other numbers.
    error = "TypeError: 0/lock: object cannot be saved."
    assert place["why"] == f"its state cannot be saved: {error}"
    assert place.keys() == {"generator", "why"}


def test_error_while_reporting_a_state_is_the_reason():
    class FailsToReport(ReportsState):
        def get_state(self):
            raise RuntimeError("not now")

    place = play(Resumable(FailsToReport()), actions=[1]).resume_state()

    assert place["why"] == "its state cannot be saved: RuntimeError: not now"
    assert place.keys() == {"generator", "why"}


def test_environment_without_set_state_is_replayed():
    class ReportsOnly(ReportsState):
        set_state = None

    env = play(Resumable(ReportsOnly()), actions=[1])

    assert env.resume_state()["actions"] == [1]


def test_environment_inside_an_unknown_wrapper_is_replayed():
    env = play(Resumable(PlainWrapper(ReportsState())), actions=[1])

    assert env.resume_state()["actions"] == [1]


# --- games ----------------------------------------------------------------------------------------


class Game(gym.Env):
    """Looks like a game of the Arcade Learning Environment."""

    observation_space = RandomWalk.observation_space
    action_space = RandomWalk.action_space
    ale = None

    def reset(self, *, seed=None, options=None):
        gym.Env.reset(self, seed=seed)
        return np.zeros(1, np.float32), {}

    def clone_state(self, include_rng):
        assert include_rng
        return self

    def restore_state(self, state):
        raise NotImplementedError

    def serialize(self):
        return b"state"


def test_game_reports_its_state():
    env = Resumable(Game())
    env.reset()

    assert env.resume_state()["levels"] == [b"state"]


def test_game_inside_an_unknown_wrapper_cannot_be_saved():
    env = Resumable(PlainWrapper(Game()))
    env.reset()

    reason = "a wrapper around the game has no get_state() and set_state(state)"
    assert env.resume_state()["why"] == reason


def make_game_class_without(*names):
    attributes = dict(vars(Game))
    for name in (*names, "__dict__", "__weakref__"):
        attributes.pop(name, None)
    return type("AlmostGame", (gym.Env,), attributes)


@pytest.mark.parametrize("names", [["ale"], ["restore_state"], ["clone_state", "restore_state"]])
def test_environment_without_a_part_of_games_is_replayed(names):
    game_class = make_game_class_without(*names)
    env = Resumable(PlainWrapper(game_class()))
    env.reset()

    assert env.resume_state()["actions"] == []


# --- infos and fingerprints -----------------------------------------------------------------------


def where_infos(value):
    """Return the comparable infos after a step with the info `{"x": value}`."""
    return play(Resumable(RandomWalk(info={"x": value})), actions=[1]).resume_state()["infos"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (True, False),
        ("a", "b"),
        (b"a", b"b"),
        (np.int64(1), np.int64(2)),
        (np.array([1]), np.array([2])),
        (np.array([0.5]), np.array([0.25])),
        (np.array([1j]), np.array([2j])),
        ([1, 2], [1, 3]),
        ((1, 2), (1, 3)),
        ({"a": 1}, {"a": 2}),
        ({"a": {"b": [1]}}, {"a": {}}),
    ],
)
def test_infos_are_compared(one, other):
    assert where_infos(one) != where_infos(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.5, 0.25),
        (np.float64(0.5), np.float64(0.25)),
        (object(), object()),
        (None, object()),
        ([0.5, 1], [0.25, 1]),
        ({"s": 0.5}, {"s": 0.2}),
        (np.array([object()]), np.array([object()])),
        (np.array(object()), np.array(object())),
    ],
)
def test_single_floats_and_objects_in_infos_are_not_compared(one, other):
    """A float may be a time, and objects may differ between runs."""
    assert where_infos(one) == where_infos(other)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# Checkpoints contain fingerprints, so these formats must not change.


def test_fingerprint_of_an_array_has_its_dtype_shape_and_bytes():
    array = np.float32([1, 2])

    assert fingerprint(array) == sha256(b"float32(2,)" + array.tobytes())
    assert fingerprint(np.int8(3)) == sha256(b"int8()\x03")


def test_fingerprint_of_other_values_is_that_of_their_repr():
    assert fingerprint(None) == sha256(b"None")
    assert fingerprint("text") == sha256(b"'text'")


def test_fingerprint_of_a_sequence_begins_with_its_length():
    half = np.float64(0.5).tobytes()

    assert fingerprint((True, 0.5)) == sha256(b"(2" + b"bool()\x01" + b"float64()" + half)


def test_fingerprint_of_a_dict_is_sorted_by_key():
    graph = spaces.GraphInstance(np.arange(3), None, None)
    tree = {"b": [None], "a": "text", 3: {"x": graph}}

    expected = b"3:'x':" + repr(graph).encode() + b"'a':'text'" + b"'b':(1None"
    assert fingerprint(tree) == sha256(expected)
