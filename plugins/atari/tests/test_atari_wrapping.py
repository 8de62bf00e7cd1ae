"""What an agent sees of Atari environments, against gymnasium's own wrappers and against the raw
emulator.

A reset with a seed loads the game anew, which takes a while: seeds are given where they matter.
"""

from __future__ import annotations

from functools import cache

import cv2
import gymnasium
import numpy as np
import pytest
import warm
from ale_py.env import AtariEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    MaxAndSkipObservation,
    TransformAction,
    TransformObservation,
)

import rlcatalog
from rlcatalog.errors import ConfigError, ConfigTypeError, NotServedError
from rlcatalog_atari.wrapper import wrap

BREAKOUT, NO_SKIP, FREEWAY = "ALE/Breakout-v5", "BreakoutNoFrameskip-v4", "ALE/Freeway-v5"
FIRE = 1


@pytest.fixture(scope="module")
def breakout():
    """An environment that nobody steps."""
    return gymnasium.make(BREAKOUT)


def why(env, config=None):
    """What the wrapper says about an environment that it leaves as it is."""
    found, verdicts = rlcatalog.default_catalog().explain_wrapping(env, config)
    [answer] = [answer for component, answer in verdicts if component.name == "atari"]
    assert found is env
    assert answer.rank is None
    return answer.why


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "kwargs", "skip", "fire"),
    [
        (BREAKOUT, {}, 1, True),
        pytest.param(BREAKOUT, {"obs_type": "grayscale"}, 1, True, marks=pytest.mark.attack),
        (NO_SKIP, {}, 4, True),
        pytest.param("ALE/Breakout-v5", {"frameskip": 1}, 4, True, marks=pytest.mark.attack),
        (FREEWAY, {}, 1, False),
        pytest.param("ALE/KingKong-v5", {}, 1, True, marks=pytest.mark.attack),
    ],
)
def test_frames_are_those_of_gymnasiums_wrappers(wrapped, env_id, kwargs, skip, fire):
    """The same seed and actions through AtariPreprocessing, FIRE pressed and frames stacked by
    hand.
    """
    ours = wrapped(env_id, **kwargs)
    theirs = AtariPreprocessing(gymnasium.make(env_id, **kwargs), frame_skip=skip)
    obs, _ = ours.reset(seed=7)
    frame, _ = theirs.reset(seed=7)
    if fire:
        frame = theirs.step(FIRE)[0]
    stack = [frame] * 4
    assert obs.dtype == np.uint8
    np.testing.assert_array_equal(obs, np.stack(stack, axis=-1))
    for action in np.random.default_rng(0).integers(0, theirs.action_space.n, 12):
        obs, *rest = ours.step(action)
        frame, *expected = theirs.step(action)
        stack = [*stack[1:], frame]
        np.testing.assert_array_equal(obs, np.stack(stack, axis=-1))
        assert rest == expected
        assert obs in ours.observation_space


def test_a_frame_is_the_maximum_of_the_last_two_of_four(wrapped):
    """Against the emulator's own gray screens, without a wrapper."""
    ours = wrapped(NO_SKIP, {"framestack": False})
    raw = gymnasium.make(NO_SKIP, obs_type="grayscale")
    obs, info = ours.reset(seed=3)
    raw.reset(seed=3)
    noops = info["frame_number"] - 4  # then FIRE for 4 frames
    assert 1 <= noops <= 30
    for _ in range(noops):
        raw.step(0)
    for action in [FIRE, 2, 0, 3, 3]:
        if action != FIRE:
            obs = ours.step(action)[0]
        screens = [raw.step(action)[0] for _ in range(4)]
        expected = cv2.resize(np.maximum(*screens[2:]), (84, 84), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(obs, expected[..., None])


def test_the_newest_frame_is_the_last_channel(wrapped):
    stacked, single = wrapped(NO_SKIP), wrapped(NO_SKIP, {"framestack": False})
    before, _ = stacked.reset(seed=1)
    single.reset(seed=1)
    changed = 0
    for action in [2, 3] * 10:
        now, frame = stacked.step(action)[0], single.step(action)[0]
        np.testing.assert_array_equal(now[..., :3], before[..., 1:])
        np.testing.assert_array_equal(now[..., 3:], frame)
        changed += not np.array_equal(now[..., 3], now[..., 2])
        before = now
    assert changed > 10


@pytest.mark.parametrize("env_id", [BREAKOUT, NO_SKIP])
def test_frames_are_skipped_once(wrapped, env_id):
    env = wrapped(env_id)
    _, info = env.reset(seed=0)
    for n in range(1, 6):
        assert env.step(0)[4]["frame_number"] == info["frame_number"] + 4 * n


def test_a_random_frame_skip_is_left_as_it_is(wrapped):
    env = wrapped("Breakout-v4")
    env.reset(seed=0)
    numbers = [env.step(0)[4]["frame_number"] for _ in range(30)]
    assert set(np.diff(numbers)) == {2, 3, 4}


def test_starts_differ_by_no_ops_and_repeat_with_the_seed(wrapped):
    env = wrapped(NO_SKIP)
    starts = [env.reset(seed=seed)[1]["frame_number"] - 4 for seed in (0, 1, 2, 0)]
    assert all(1 <= start <= 30 for start in starts)
    assert len(set(starts)) > 1
    assert starts[0] == starts[-1]


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({}, (84, 84, 4)),
        ({"framestack": True}, (84, 84, 4)),
        ({"framestack": False}, (84, 84, 1)),
        ({"framestack": 1}, (84, 84, 1)),
        ({"framestack": 2, "dim": 42}, (42, 42, 2)),
        ({"dim": np.int64(1)}, (1, 1, 4)),
        ({"grayscale": True, "zero_mean": False}, (84, 84, 4)),
    ],
)
def test_sizes_follow_the_config(wrapped, config, shape):
    env = wrapped(BREAKOUT, config)
    obs, _ = env.reset()
    assert obs.shape == env.observation_space.shape == shape
    assert obs.dtype == env.observation_space.dtype == np.uint8
    assert env.step(0)[0].shape == shape


def test_a_game_without_a_no_op_starts_without_no_ops(wrapped):
    env = wrapped("ALE/VideoCheckers-v5")
    assert "NOOP" not in env.unwrapped.get_action_meanings()
    assert env.reset(seed=0)[1]["frame_number"] == 4  # FIRE


def test_continuous_actions_work(wrapped):
    env = wrapped(
        BREAKOUT,
        {"atari_terminal_on_life_loss": True},
        continuous=True,
        repeat_action_probability=0.0,
    )
    env.reset(seed=0)
    nothing = np.zeros(3, np.float32)
    ended = (env.step(nothing)[2] for _ in range(200))
    assert any(ended)  # FIRE was pressed: the ball fell
    assert env.unwrapped.ale.lives() == 4
    env.reset()
    assert env.unwrapped.ale.lives() == 4


# --- preferences ----------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("obs_type", ["rgb", "grayscale", "ram"])
@pytest.mark.parametrize("preference", ["deepmind", "rllib", None])
def test_each_preference_serves_pixels_and_ram(wrapped, preference, obs_type):
    env = wrapped(BREAKOUT, {"preprocessor_pref": preference}, obs_type=obs_type)
    expected = {
        ("deepmind", "rgb"): ((84, 84, 4), "uint8"),
        ("deepmind", "grayscale"): ((84, 84, 4), "uint8"),
        ("rllib", "rgb"): ((84, 84, 3), "float32"),
        ("rllib", "grayscale"): ((84, 84, 1), "float32"),
        ("rllib", "ram"): ((128,), "float32"),
        (None, "rgb"): ((210, 160, 3), "uint8"),
        (None, "grayscale"): ((210, 160), "uint8"),
    }.get((preference, obs_type), ((128,), "uint8"))
    obs, _ = env.reset()
    for found in (obs, env.step(0)[0], env.observation_space):
        assert (found.shape, str(found.dtype)) == expected
    assert obs in env.observation_space


@pytest.mark.parametrize(("zero_mean", "low", "divisor"), [(True, -1.0, 128), (False, 0.0, 255)])
def test_the_bounds_of_scaled_observations_are_honest(wrapped, zero_mean, low, divisor):
    env = wrapped(
        BREAKOUT, {"preprocessor_pref": "rllib", "zero_mean": zero_mean, "grayscale": True}
    )
    space = env.observation_space
    assert type(space) is Box
    assert not hasattr(space, "original_space")
    assert not hasattr(space, "preprocessor")
    assert (space.low.min(), space.high.max()) == (low, 1.0)
    obs, _ = env.reset()
    assert obs.min() == low  # the screen has black
    values = obs * divisor + (128 if zero_mean else 0)
    assert values.max() > 100


def test_scaled_ram_is_that_of_the_emulator(wrapped):
    env = wrapped(BREAKOUT, {"preprocessor_pref": "rllib"}, obs_type="ram")
    env.reset()
    for _ in range(5):
        obs = env.step(env.action_space.sample())[0]
        np.testing.assert_array_equal(obs, (env.unwrapped.ale.getRAM().astype(float) - 128) / 128)
    space = env.observation_space
    assert (space.low.min(), space.high.max()) == (-1.0, 127 / 128)
    assert not hasattr(space, "original_space")


# --- what is left as it is ------------------------------------------------------------------------


class Emits(gymnasium.Env):
    """An environment that is no game."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, Discrete(2)


@pytest.mark.parametrize(
    "space",
    [Box(-1, 1, (128,)), Box(0, 255, (128,), np.uint8), Box(0, 255, (210, 160, 3), np.uint8)],
)
@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_an_environment_is_not_taken_for_a_game_by_its_shape(space, preference):
    """RLlib rescales any (128,) and any (210, 160, 3), whatever they are."""
    env = Emits(space)
    config = {"preprocessor_pref": preference}
    assert "takes Atari environments (ale_py), not Emits" in why(env, config)
    policy = rlcatalog.build(env=env, config=config)
    assert policy.preprocessor.component.name == "none"
    assert policy.encoded_space is space


def test_a_class_of_the_same_name_is_no_game():
    lookalike = type("AtariEnv", (Emits,), {})(Box(0, 255, (210, 160, 3), np.uint8))
    assert "not AtariEnv" in why(lookalike)


def test_a_subclass_of_the_game_is_a_game():
    env = rlcatalog.wrap_env(type("MyBreakout", (AtariEnv,), {})("breakout"))
    assert env.observation_space.shape == (84, 84, 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda env: AtariPreprocessing(env, frame_skip=1),
            "AtariPreprocessing has already changed the observations",
        ),
        (
            lambda env: MaxAndSkipObservation(env),
            "MaxAndSkipObservation has already changed the observations",
        ),
        (
            lambda env: TransformObservation(env, lambda obs: 255 - obs, None),
            "TransformObservation has already",
        ),
        (
            lambda env: FrameStackObservation(env, 2),
            "FrameStackObservation has already changed the observations",
        ),
    ],
)
@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_observations_that_another_wrapper_made_are_left_as_they_are(
    breakout, change, said, preference
):
    assert said in why(change(breakout), {"preprocessor_pref": preference})


@pytest.mark.parametrize(
    ("kwargs", "config", "said"),
    [
        ({"obs_type": "ram"}, {}, "RAM observations have no frames"),
        ({"sound_obs": True}, {}, "takes pixels or RAM, not Dict"),
        ({}, {"preprocessor_pref": None}, "preprocessor_pref is None"),
        (
            {},
            {"custom_preprocessor": "generic_pixel"},
            "custom_preprocessor needs unchanged observations",
        ),
    ],
)
def test_a_game_is_left_as_it_is_for_a_reason(kwargs, config, said):
    env = gymnasium.make(BREAKOUT, **kwargs)
    assert said in why(env, config)
    with pytest.raises(NotServedError, match=said):
        wrap(env, config)


@pytest.mark.parametrize("config", [{}, {"preprocessor_pref": "rllib"}])
def test_wrapping_twice_is_wrapping_once(config):
    once = rlcatalog.wrap_env(gymnasium.make(BREAKOUT), config)
    assert rlcatalog.wrap_env(once, config) is once
    recorded = gymnasium.make(once.spec)  # the wrappers without the catalog's mark
    assert str(recorded) == str(once)
    assert "has already changed the observations" in why(recorded, config)


# --- errors ---------------------------------------------------------------------------------------


def test_an_environment_that_is_no_game_is_refused_by_the_function():
    with pytest.raises(NotServedError, match="takes Atari environments"):
        wrap(gymnasium.make("CartPole-v1"), {})


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("dim", 0, ConfigError),
        ("dim", "84", ConfigTypeError),
        ("framestack", 0, ConfigError),
        ("framestack", "yes", ConfigTypeError),
        ("preprocessor_pref", "atari", ConfigError),
        ("atari_terminal_on_life_loss", 1, ConfigTypeError),
    ],
)
@pytest.mark.parametrize("function", [wrap, rlcatalog.wrap_env])
def test_a_wrong_value_is_refused_by_name(breakout, function, key, value, error):
    with pytest.raises(error, match=key):
        function(breakout, {key: value})


def test_changed_actions_are_not_guessed(breakout, layers):
    """Whether 1 is still FIRE, nobody knows: it is not pressed, and what needs a no-op says so."""
    env = TransformAction(breakout, lambda action: action + 2, Discrete(2))
    assert "FireOnReset" not in layers(rlcatalog.wrap_env(env))
    with pytest.raises(
        NotServedError, match=r"TerminalOnLifeLoss needs the action NOOP.*Discrete\(2\)"
    ):
        rlcatalog.wrap_env(env, {"atari_terminal_on_life_loss": True})


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_a_policy_acts_on_what_its_wrapper_emits(framework, preference):
    env = gymnasium.make(BREAKOUT)
    config = {"dim": 10, "preprocessor_pref": preference}
    policy = rlcatalog.build(env=env, config=config, framework=framework)
    env = policy.wrap_env(env)
    assert policy.observation_space == env.observation_space
    obs, _ = env.reset()
    step = policy.act(obs[None])
    assert env.action_space.contains(step.action[0])
    np.testing.assert_allclose(
        policy.act([obs, obs], explore=False).dist_inputs[1],
        step.dist_inputs[0],
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_vector_of_games_is_wrapped_when_it_is_made():
    made = {"vectorization_mode": "sync", "num_envs": 2}
    envs = gymnasium.make_vec(BREAKOUT, **made, wrappers=[rlcatalog.wrap_env])
    obs, _ = envs.reset()
    assert obs.shape == (2, 84, 84, 4)
    policy = rlcatalog.build(env=envs)
    obs = envs.step(policy.act(obs).action)[0]
    assert obs.shape == (2, 84, 84, 4)
    with pytest.raises(
        rlcatalog.errors.ModelContractError, match=r"lack the wrapper 'atari'.*wrap_env"
    ):
        rlcatalog.build(env=gymnasium.make_vec(BREAKOUT, **made))


def test_explaining_imports_neither_emulator_nor_image_library(tmp_path):
    code = (
        "import sys, gymnasium, rlcatalog\nenv, verdicts ="
        " rlcatalog.default_catalog().explain_wrapping(gymnasium.make('CartPole-v1'))\nassert"
        " 'atari' in [component.name for component, _ in verdicts]\nassert not {'cv2', 'ale_py',"
        " 'torch', 'tensorflow'} & set(sys.modules), sorted(sys.modules)"
    )
    done = warm.run(["-c", code], tmp_path, frameworks=False)
    assert done.returncode == 0, done.stderr


# --- keys that did nothing ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without():
    """What an environment shows where no key of the test's is set: its space and its first
    observation.
    """

    @cache
    def shown(preference, obs_type):
        env = rlcatalog.wrap_env(
            gymnasium.make("ALE/Pong-v5", obs_type=obs_type), {"preprocessor_pref": preference}
        )
        return env.observation_space, env.reset(seed=0)[0]

    return shown


@pytest.mark.grid
@pytest.mark.parametrize(
    ("key", "value"), [("framestack", 2), ("dim", 42), ("grayscale", True), ("zero_mean", False)]
)
@pytest.mark.parametrize("obs_type", ["rgb", "ram"])
@pytest.mark.parametrize("preference", ["deepmind", "rllib", None])
def test_a_key_that_changes_nothing_is_unread(wrapped, without, preference, obs_type, key, value):
    """What counts is what the environment emits: a key is unread if, and only if, that is the same
    without it.
    """
    config = {"preprocessor_pref": preference, key: value}
    env = wrapped("ALE/Pong-v5", config, obs_type=obs_type)
    space, seen = without(preference, obs_type)
    same = env.observation_space == space and np.array_equal(env.reset(seed=0)[0], seen)
    found = rlcatalog.explain(env.observation_space, env.action_space, config).as_dict()["unread"]
    assert (key in found) == same
    assert set(found) <= {key}
