"""`Resumable` by itself: how it saves an environment's state, and how it restores it."""

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


class Road(gym.Env):
    """Walks by its action and by chance; ends after `limit` steps, by itself or cut.

    It overwrites its observation.
    """

    observation_space, action_space = spaces.Box(-99, 99, (1,), np.float32), spaces.Discrete(3)

    def __init__(self, limit=4, cut=False, info=None, draws=1):
        self.limit, self.cut, self.info, self.draws = limit, cut, info or {}, draws
        self.obs, self.options = np.zeros(1, np.float32), []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options.append(options)
        self.t, self.obs[:] = 0, self.np_random.random()
        return self.obs, {}

    def step(self, action):
        self.t += 1
        self.obs += float(np.sum(action)) + self.np_random.random(self.draws).sum()
        over = self.t == self.limit
        return (
            self.obs,
            float(self.obs[0]),
            over and not self.cut,
            over and self.cut,
            dict(self.info),
        )


class Told(Road):
    """Reports its state, all of it but the generator's."""

    def get_state(self):
        return {"t": self.t, "x": self.obs}

    def set_state(self, state):
        self.t, self.obs[:] = state["t"], state["x"]


class Around(gym.Wrapper):
    """A wrapper that reports no state."""


def walked(env, actions, seed=3):
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
    return env


def stored(place):
    """Return a place as a checkpoint gives it back."""
    arrays = {}
    return put_together(json.loads(json.dumps(take_apart(place, arrays))), arrays)


# --- replays --------------------------------------------------------------------------------------


def test_replay_needs_neither_the_callers_arrays_nor_options():
    """They may be overwritten after the call."""

    class Vectors(Road):
        action_space = spaces.MultiDiscrete([3, 3])

    env, other = Resumable(Vectors(9)), Resumable(Vectors(9))
    action, options = np.array([2, 1]), {"a": [1]}
    env.reset(seed=1, options=options)
    env.step(action)
    env.step(action)
    action[:] = 0
    options["a"].append(2)
    place = stored(env.where())
    assert place["actions"] == [[2, 1], [2, 1]]
    assert other.go_to([place]) is None
    assert other.unwrapped.options == [{"a": [1]}]
    np.testing.assert_array_equal(other.obs, env.obs)
    for one in (env, other):
        one.step(np.array([1, 1]))
    np.testing.assert_array_equal(other.obs, env.obs)


@pytest.mark.parametrize("cut", [False, True])
def test_former_episode_is_replayed_to_its_end(cut):
    env, other = Resumable(Road(3, cut)), Resumable(Road(3, cut))
    walked(env, [1, 2, 0])
    env.reset()
    env.step(2)
    place = stored(env.where())
    assert place["before"]["actions"] == [1, 2, 0]
    assert place["actions"] == [2]
    assert "seen" not in place["before"]
    assert other.go_to([place]) is None
    assert other.where() == env.where()
    early, late = Resumable(Road(2, cut)), Resumable(Road(5, cut))
    assert early.go_to([place]) == "its replayed episode ends after 2 of 3 steps"
    assert late.go_to([place]) == "its replayed episode has different rewards or a different end"
    other_end = Resumable(Road(3, not cut))
    assert (
        other_end.go_to([place]) == "its replayed episode has different rewards or a different end"
    )


def test_only_the_former_episode_is_kept_and_the_generator_must_match_between():
    env = walked(Resumable(Road(2)), [1, 1])
    env.reset()
    env.step(0)
    env.step(0)
    env.reset()
    place = env.where()
    assert place["before"]["actions"] == [0, 0]
    assert "before" not in walked(Resumable(Road(2)), [1]).where()
    wrong = copy.deepcopy(place)
    wrong["begun"]["generator"]["state"]["state"] += 2
    reason = "after a replay of its last episode, its generator is in a different state"
    assert Resumable(Road(2)).go_to([wrong]) == reason
    wrong = copy.deepcopy(place)
    wrong["generator"]["state"]["state"] += 2
    assert Resumable(Road(2)).go_to([wrong]) == reason.replace("last ", "")


def test_states_of_older_versions_lack_outcomes_and_infos():
    env = walked(Resumable(Road(info={"level": 1})), [1, 2])
    place = env.where()
    assert place["infos"].keys() == {"level"}
    older = {name: part for name, part in place.items() if name not in ("outcome", "infos")}
    assert Resumable(Road(info={"level": 2})).go_to([older]) is None
    reason = "its replayed episode has different infos: level"
    assert Resumable(Road(info={"level": 2})).go_to([place]) == reason
    assert Resumable(Road(info={"level": 1})).go_to([place]) is None
    reason = "its replayed episode has different infos: extra, level"
    assert Resumable(Road(info={"extra": 1})).go_to([place]) == reason
    assert (
        Resumable(Road(draws=2)).go_to([older])
        == "its replayed episode has a different observation"
    )
    blind = {name: part for name, part in place.items() if name != "seen"}
    assert "different rewards" in Resumable(Road(draws=2)).go_to([blind])


def test_a_failed_replay_leaves_the_generator_of_the_run_and_no_episode():
    env = walked(Resumable(Road()), [1, 2])
    place = env.where()
    other = Resumable(Road(1))
    assert other.go_to([{}, {}, place][2:]) == "its replayed episode ends after 1 of 2 steps"
    assert other.where()["generator"] == place["generator"]
    other.reset()
    assert "before" not in other.where()  # the failed replay is not an episode of the run
    assert other.where()["actions"] == []


def test_each_environment_takes_its_own_place():
    env = walked(Resumable(Road(), 1, 2), [2])
    place = env.where()
    other = Resumable(Road(), 1, 2)
    assert other.go_to([{"generator": {}, "why": "not this one"}, place]) is None
    assert other.go_to([place, {"generator": {}, "why": "this one"}]) == "this one"
    assert other.go_to([place, {"generator": place["generator"]}]).startswith("KeyError: ")


@pytest.mark.parametrize(
    ("longest", "kept", "before"), [(9, True, True), (5, True, True), (4, True, False)]
)
def test_long_episodes_are_replayed_without_the_former_one(longest, kept, before, monkeypatch):
    monkeypatch.setattr(env_state, "_LONGEST", longest)
    env = walked(Resumable(Road(3)), [1, 1, 1])
    env.reset()
    env.step(0)
    env.step(0)
    assert ("actions" in env.where()) is kept
    assert ("before" in env.where()) is before


def test_episode_that_is_too_long_is_not_replayed(monkeypatch):
    monkeypatch.setattr(env_state, "_LONGEST", 3)
    env = walked(Resumable(Road(9)), [1, 1, 1])
    assert len(env.where()["actions"]) == 3
    env.step(1)
    place = env.where()
    assert place["why"] == "its episode is longer than 3 steps"
    assert "actions" not in place
    assert Resumable(Road(9)).go_to([place]) == place["why"]
    env.reset()
    assert env.where()["actions"] == []


def test_options_that_are_not_plain_data_cannot_be_replayed():
    env = Resumable(Road())
    env.reset(seed=1, options={"x": object()})
    place = env.where()
    assert place["why"].startswith("its actions cannot be saved: TypeError: ")
    assert place.keys() == {"generator", "why"}


# --- environments that report their state ---------------------------------------------------------


def test_a_state_that_is_reported_is_copied_and_set_with_the_generator():
    env, other = (
        walked(Resumable(TimeLimit(Told(99), 7)), [1, 2, 1]),
        Resumable(TimeLimit(Told(99), 7)),
    )
    place = env.where()
    assert place["levels"][0] == {"_elapsed_steps": 3}
    before = place["levels"][1]["x"].copy()
    env.step(2)
    np.testing.assert_array_equal(place["levels"][1]["x"], before)
    assert other.go_to([stored(place)]) is None
    np.testing.assert_array_equal(other.step(2)[0], env.obs)
    ends = [other.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False)] * 2 + [(False, True)]  # the seventh step
    assert other.go_to([{**place, "levels": place["levels"][1:]}]) == "its wrappers have changed"
    assert Resumable(TimeLimit(Road(), 7)).go_to([place]) == "its wrappers have changed"
    assert other.go_to([walked(Resumable(Road()), [1]).where()]) == "its wrappers have changed"


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ({"_elapsed_steps": "3"}, "ValueError: TimeLimit has no _elapsed_steps of str"),
        ({"_elapsed_steps": True}, "ValueError: TimeLimit has no _elapsed_steps of bool"),
        ({"_max_episode_steps": 3}, "ValueError: TimeLimit has no _max_episode_steps of int"),
        ({"no_such": 3}, "AttributeError: "),
    ],
)
def test_wrapper_takes_only_what_it_would_have_itself(level, message):
    env = walked(Resumable(TimeLimit(Told(), 7)), [1])
    place = env.where()
    assert env.go_to([{**place, "levels": [level, place["levels"][1]]}]).startswith(message)


class Fresh(Told):
    """Returns a new array each time, as stacked frames need."""

    def reset(self, **options):
        obs, info = super().reset(**options)
        return obs.copy(), info

    def step(self, action):
        obs, *rest = super().step(action)
        return obs.copy(), *rest


def test_stacked_frames_keep_their_length():
    env, other = (Resumable(FrameStackObservation(Fresh(99), 3)) for _ in range(2))
    walked(env, [1, 2])
    other.reset(seed=8)
    assert other.go_to([stored(env.where())]) is None
    queue = other.env.obs_queue
    assert (type(queue), queue.maxlen) == (deque, 3)
    np.testing.assert_array_equal(other.step(1)[0], env.step(1)[0])


def test_reported_state_must_be_plain_data():
    class Odd(Told):
        def get_state(self):
            return {"lock": object()}

    class Broken(Told):
        def get_state(self):
            raise RuntimeError("not now")

    for kind, error in (
        (Odd, "TypeError: 0/lock: object cannot be saved."),
        (Broken, "RuntimeError: not now"),
    ):
        place = walked(Resumable(kind()), [1]).where()
        assert place["why"] == f"its state cannot be saved: {error}"
        assert place.keys() == {"generator", "why"}


def test_an_environment_without_set_state_and_an_unknown_wrapper_are_replayed():
    class Half(Told):
        set_state = None

    for env in (Half(), Around(Told())):
        assert walked(Resumable(env), [1]).where()["actions"] == [1]


class Game(gym.Env):
    """Looks like a game of the Arcade Learning Environment."""

    observation_space, action_space, ale = Road.observation_space, Road.action_space, None

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


def test_game_reports_its_state_unless_a_wrapper_hides_it():
    env = Resumable(Game())
    env.reset()
    assert env.where()["levels"] == [b"state"]

    wrapped = Resumable(Around(Game()))
    wrapped.reset()
    assert (
        wrapped.where()["why"]
        == "a wrapper around the game has no get_state() and set_state(state)"
    )


def lacking(*names):
    """Return a game's class without some of its attributes."""
    left_out = {*names, "__dict__", "__weakref__"}
    return type(
        "NoGame",
        (gym.Env,),
        {name: part for name, part in vars(Game).items() if name not in left_out},
    )


@pytest.mark.parametrize("names", [["ale"], ["restore_state"], ["clone_state", "restore_state"]])
def test_environment_that_lacks_a_part_of_a_game_is_replayed(names):
    env = Resumable(Around(lacking(*names)()))
    env.reset()
    assert env.where()["actions"] == []


# --- infos and fingerprints -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 2, False),
        (True, False, False),
        ("a", "b", False),
        (b"a", b"b", False),
        (np.int64(1), np.int64(2), False),
        (np.bool_(True), np.bool_(False), False),
        (np.str_("a"), np.str_("b"), False),
        (np.array([1]), np.array([2]), False),
        (np.array(["a"]), np.array(["b"]), False),
        (np.array([0.5]), np.array([0.25]), False),
        (np.array([1j]), np.array([2j]), False),
        ([1, 2], [1, 3], False),
        ((1, 2), (1, 3), False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": {"b": [1]}}, {"a": {}}, False),
        (0.5, 0.25, True),
        (np.float64(0.5), np.float64(0.25), True),
        (np.array(0.5), np.array(0.25), True),
        (object(), object(), True),
        (None, object(), True),
        ([0.5, 1], [0.25, 1], True),
        ({"s": 0.5}, {"s": 0.2}, True),
        (np.array([object()]), np.array([object()]), True),
        (np.array(object()), np.array(object()), True),
        (np.complex64(1j), np.complex64(2j), True),
    ],
)
def test_infos_are_compared_except_for_single_floats_and_objects(one, other, same):
    kept = [
        walked(Resumable(Road(info={"x": part})), [1]).where()["infos"] for part in (one, other)
    ]
    assert (kept[0] == kept[1]) is same


def test_a_fingerprint_is_the_hash_of_structure_dtypes_shapes_and_numbers():
    """Checkpoints contain fingerprints, so their format stays as it is."""
    graph = spaces.GraphInstance(np.arange(3), None, None)
    tree = {"b": [np.float32([1, 2]), (True, 0.5)], "a": "text", 3: {"x": graph}}
    raw = b"3:'x':" + repr(graph).encode() + b"'a':'text'"
    raw += (
        b"'b':(2float32(2,)"
        + np.float32([1, 2]).tobytes()
        + b"(2bool()\x01float64()"
        + np.float64(0.5).tobytes()
    )
    assert fingerprint(tree) == hashlib.sha256(raw).hexdigest()
    assert fingerprint(None) == hashlib.sha256(b"None").hexdigest()
    assert fingerprint(np.int8(3)) == hashlib.sha256(b"int8()\x03").hexdigest()
