"""Observations of wrapped Atari environments, compared with gymnasium's wrappers and the emulator.

A reset with a seed loads the game again, which takes a while: seeds are given where they matter.
"""

from __future__ import annotations

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
from rlcatalog.errors import ConfigError, ConfigTypeError, ModelContractError, NotServedError
from rlcatalog_atari.wrapper import wrap

#: A step of the first and of the third is four frames, of the second one frame.
BREAKOUT = "ALE/Breakout-v5"
BREAKOUT_WITHOUT_SKIP = "BreakoutNoFrameskip-v4"
FREEWAY = "ALE/Freeway-v5"
NOOP = 0
FIRE = 1


@pytest.fixture(scope="module")
def breakout():
    """An environment that no test steps."""
    return gymnasium.make(BREAKOUT)


def explain_refusal(env, config=None):
    """Return why the Atari wrapper leaves an environment as it is."""
    same_env, verdicts = rlcatalog.default_catalog().explain_wrapping(env, config)
    [match] = [match for part, match in verdicts if part.name == "atari"]
    assert same_env is env
    assert match.rank is None
    return match.why


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "kwargs", "frame_skip", "has_fire"),
    [
        pytest.param(BREAKOUT, {}, 1, True, id="breakout"),
        pytest.param(
            BREAKOUT, {"obs_type": "grayscale"}, 1, True, id="gray", marks=pytest.mark.slow
        ),
        pytest.param(BREAKOUT_WITHOUT_SKIP, {}, 4, True, id="breakout-without-skip"),
        pytest.param(BREAKOUT, {"frameskip": 1}, 4, True, id="skip-of-1", marks=pytest.mark.slow),
        pytest.param(FREEWAY, {}, 1, False, id="freeway"),
        pytest.param("ALE/KingKong-v5", {}, 1, True, id="king-kong", marks=pytest.mark.slow),
    ],
)
def test_frames_are_those_of_gymnasiums_wrappers(wrap_game, env_id, kwargs, frame_skip, has_fire):
    ours = wrap_game(env_id, **kwargs)
    theirs = AtariPreprocessing(gymnasium.make(env_id, **kwargs), frame_skip=frame_skip)

    obs, _ = ours.reset(seed=7)
    frame, _ = theirs.reset(seed=7)
    if has_fire:  # then our wrapper presses it at each reset
        frame, *_ = theirs.step(FIRE)
    last_four = [frame, frame, frame, frame]
    np.testing.assert_array_equal(obs, np.stack(last_four, axis=-1))
    assert obs.dtype == np.uint8

    for action in np.random.default_rng(0).integers(0, theirs.action_space.n, 12):
        obs, *reward_ends_and_info = ours.step(action)
        frame, *expected = theirs.step(action)
        last_four = [*last_four[1:], frame]

        np.testing.assert_array_equal(obs, np.stack(last_four, axis=-1))
        assert reward_ends_and_info == expected


def test_frame_is_the_maximum_of_the_last_two_of_four(wrap_game):
    env = wrap_game(BREAKOUT_WITHOUT_SKIP, {"framestack": False})
    _, info = env.reset(seed=3)
    # The reset has waited for a random number of frames, and pressed FIRE for four.
    emulator = gymnasium.make(BREAKOUT_WITHOUT_SKIP, obs_type="grayscale")
    emulator.reset(seed=3)
    for _ in range(info["frame_number"] - 4):
        emulator.step(NOOP)
    for _ in range(4):
        emulator.step(FIRE)

    for action in (2, 0, 3, 3):
        obs, *_ = env.step(action)

        screens = [emulator.step(action)[0] for _ in range(4)]
        brightest = np.maximum(screens[2], screens[3])
        expected = cv2.resize(brightest, (84, 84), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(obs[..., 0], expected)


def test_newest_frame_is_the_last_channel(wrap_game):
    stacked = wrap_game(BREAKOUT_WITHOUT_SKIP)
    single = wrap_game(BREAKOUT_WITHOUT_SKIP, {"framestack": False})
    obs, _ = stacked.reset(seed=1)
    single.reset(seed=1)

    changes = 0
    for action in [2, 3] * 10:
        previous_obs = obs
        obs, *_ = stacked.step(action)
        frame, *_ = single.step(action)

        np.testing.assert_array_equal(obs[..., :3], previous_obs[..., 1:])
        np.testing.assert_array_equal(obs[..., 3:], frame)
        if not np.array_equal(obs[..., 3], obs[..., 2]):
            changes += 1

    # Otherwise the order of equal frames would prove nothing.
    assert changes > 10


@pytest.mark.parametrize("env_id", [BREAKOUT, BREAKOUT_WITHOUT_SKIP])
def test_step_is_four_frames_under_any_frame_skip(wrap_game, env_id):
    env = wrap_game(env_id)
    _, info = env.reset(seed=0)
    first_frame = info["frame_number"]

    frames = [env.step(NOOP)[4]["frame_number"] - first_frame for _ in range(5)]

    assert frames == [4, 8, 12, 16, 20]


def test_random_frame_skip_is_left_as_it_is(wrap_game):
    env = wrap_game("Breakout-v4")  # it skips 2 to 4 frames
    env.reset(seed=0)

    frames = [env.step(NOOP)[4]["frame_number"] for _ in range(30)]

    assert set(np.diff(frames)) == {2, 3, 4}


def test_game_starts_after_a_random_number_of_no_ops(wrap_game):
    env = wrap_game(BREAKOUT_WITHOUT_SKIP)

    frames_of_fire = 4
    no_ops = [env.reset(seed=seed)[1]["frame_number"] - frames_of_fire for seed in (0, 1, 2, 0)]

    assert all(1 <= number <= 30 for number in no_ops)
    assert len(set(no_ops)) > 1
    assert no_ops[0] == no_ops[-1]  # of the same seed


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({}, (84, 84, 4)),
        ({"framestack": True}, (84, 84, 4)),
        ({"framestack": False}, (84, 84, 1)),
        ({"framestack": 1}, (84, 84, 1)),
        ({"framestack": 2, "dim": 42}, (42, 42, 2)),
        ({"dim": np.int64(1)}, (1, 1, 4)),
        ({"grayscale": True, "zero_mean": False}, (84, 84, 4)),  # have no effect here
    ],
)
def test_size_of_observations_follows_the_config(wrap_game, config, shape):
    env = wrap_game(BREAKOUT, config)

    first_obs, _ = env.reset()
    second_obs, *_ = env.step(NOOP)

    assert env.observation_space.shape == shape
    assert env.observation_space.dtype == np.uint8
    assert first_obs.shape == shape
    assert first_obs.dtype == np.uint8
    assert second_obs.shape == shape


def test_game_without_a_no_op_starts_without_no_ops(wrap_game):
    env = wrap_game("ALE/VideoCheckers-v5")
    assert "NOOP" not in env.unwrapped.get_action_meanings()

    _, info = env.reset(seed=0)

    assert info["frame_number"] == 4  # those of FIRE


def test_game_with_continuous_actions_is_wrapped(wrap_game):
    config = {"atari_terminal_on_life_loss": True}
    env = wrap_game(BREAKOUT, config, continuous=True, repeat_action_probability=0.0)
    env.reset(seed=0)
    do_nothing = np.zeros(3, np.float32)

    # The reset has pressed FIRE, so the ball falls.
    terminated = False
    for _ in range(200):
        _, _, terminated, _, _ = env.step(do_nothing)
        if terminated:
            break

    assert terminated
    assert env.unwrapped.ale.lives() == 4  # of 5
    env.reset()
    assert env.unwrapped.ale.lives() == 4  # the same game goes on


# --- preferences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preference", "obs_type", "shape", "dtype"),
    [
        ("deepmind", "rgb", (84, 84, 4), "uint8"),
        ("deepmind", "grayscale", (84, 84, 4), "uint8"),
        ("deepmind", "ram", (128,), "uint8"),
        ("rllib", "rgb", (84, 84, 3), "float32"),
        ("rllib", "grayscale", (84, 84, 1), "float32"),
        ("rllib", "ram", (128,), "float32"),
        (None, "rgb", (210, 160, 3), "uint8"),
        (None, "grayscale", (210, 160), "uint8"),
        (None, "ram", (128,), "uint8"),
    ],
)
def test_preference_decides_the_form_of_observations(wrap_game, preference, obs_type, shape, dtype):
    env = wrap_game(BREAKOUT, {"preprocessor_pref": preference}, obs_type=obs_type)

    first_obs, _ = env.reset()
    second_obs, *_ = env.step(NOOP)

    assert first_obs in env.observation_space
    for value in (first_obs, second_obs, env.observation_space):
        assert value.shape == shape
        assert value.dtype == dtype


@pytest.mark.parametrize(("zero_mean", "low"), [(True, -1.0), (False, 0.0)])
def test_space_of_scaled_pixels_has_their_range(wrap_game, zero_mean, low):
    config = {"preprocessor_pref": "rllib", "zero_mean": zero_mean, "grayscale": True}
    env = wrap_game(BREAKOUT, config)

    obs, _ = env.reset()

    assert env.observation_space.low.min() == low
    assert env.observation_space.high.max() == 1.0
    assert obs.min() == low  # the background is black
    assert obs.max() > low + 0.3  # the bricks are bright


def test_space_of_scaled_pixels_is_a_plain_box(wrap_game):
    space = wrap_game(BREAKOUT, {"preprocessor_pref": "rllib"}).observation_space

    # A preprocessor's space has these attributes, which RLlib would act on.
    assert type(space) is Box
    assert not hasattr(space, "original_space")
    assert not hasattr(space, "preprocessor")


def test_scaled_ram_is_that_of_the_emulator(wrap_game):
    env = wrap_game(BREAKOUT, {"preprocessor_pref": "rllib"}, obs_type="ram")
    env.reset()

    for _ in range(5):
        obs, *_ = env.step(env.action_space.sample())

        ram = env.unwrapped.ale.getRAM().astype(float)
        np.testing.assert_array_equal(obs, (ram - 128) / 128)


def test_space_of_scaled_ram_has_the_range_of_bytes(wrap_game):
    space = wrap_game(BREAKOUT, {"preprocessor_pref": "rllib"}, obs_type="ram").observation_space

    assert space.low.min() == -1.0
    assert space.high.max() == 127 / 128
    assert not hasattr(space, "original_space")


# --- environments that are left as they are -------------------------------------------------------


class NoGame(gymnasium.Env):
    """An environment that is no game, with this observation space."""

    def __init__(self, space):
        self.observation_space = space
        self.action_space = Discrete(2)


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(Box(-1, 1, (128,)), id="floats"),
        pytest.param(Box(0, 255, (128,), np.uint8), id="ram"),
        pytest.param(Box(0, 255, (210, 160, 3), np.uint8), id="screen"),
    ],
)
@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_environment_is_not_taken_for_a_game_by_its_shape(space, preference):
    # RLlib rescales any Box of these two shapes.
    env = NoGame(space)
    config = {"preprocessor_pref": preference}

    policy = rlcatalog.build(env=env, config=config)

    assert policy.preprocessor.part.name == "none"
    assert policy.encoded_space is space
    assert "takes Atari environments (ale_py), not NoGame" in explain_refusal(env, config)


def test_class_of_the_same_name_is_not_a_game():
    lookalike = type("AtariEnv", (NoGame,), {})
    env = lookalike(Box(0, 255, (210, 160, 3), np.uint8))

    assert "not AtariEnv" in explain_refusal(env)


def test_subclass_of_the_game_is_a_game():
    class MyAtariEnv(AtariEnv):
        pass

    env = rlcatalog.wrap_env(MyAtariEnv("breakout"))

    assert env.observation_space.shape == (84, 84, 4)


def invert_colours(env):
    return TransformObservation(env, lambda obs: 255 - obs, None)


@pytest.mark.parametrize(
    ("change", "wrapper"),
    [
        (lambda env: AtariPreprocessing(env, frame_skip=1), "AtariPreprocessing"),
        (MaxAndSkipObservation, "MaxAndSkipObservation"),
        (invert_colours, "TransformObservation"),
        (lambda env: FrameStackObservation(env, 2), "FrameStackObservation"),
    ],
    ids=["preprocessing", "skip", "transform", "stack"],
)
@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_changed_observations_are_left_as_they_are(breakout, change, wrapper, preference):
    reason = explain_refusal(change(breakout), {"preprocessor_pref": preference})

    assert f"{wrapper} has already changed the observations" in reason


@pytest.mark.parametrize(
    ("kwargs", "config", "reason"),
    [
        pytest.param({"obs_type": "ram"}, {}, "RAM observations have no frames", id="ram"),
        pytest.param({"sound_obs": True}, {}, "takes pixels or RAM, not Dict", id="sound"),
        pytest.param({}, {"preprocessor_pref": None}, "preprocessor_pref is None", id="preference"),
        pytest.param(
            {},
            {"custom_preprocessor": "generic_pixel"},
            "custom_preprocessor needs unchanged",
            id="custom-preprocessor",
        ),
    ],
)
def test_game_is_left_as_it_is_for_a_reason(kwargs, config, reason):
    env = gymnasium.make(BREAKOUT, **kwargs)

    assert reason in explain_refusal(env, config)
    with pytest.raises(NotServedError, match=reason):
        wrap(env, config)


@pytest.mark.parametrize("config", [{}, {"preprocessor_pref": "rllib"}], ids=["deepmind", "rllib"])
def test_wrapped_game_is_not_wrapped_again(config):
    env = rlcatalog.wrap_env(gymnasium.make(BREAKOUT), config)

    assert rlcatalog.wrap_env(env, config) is env


@pytest.mark.parametrize("config", [{}, {"preprocessor_pref": "rllib"}], ids=["deepmind", "rllib"])
def test_game_made_of_a_wrapped_spec_is_not_wrapped_again(config):
    env = rlcatalog.wrap_env(gymnasium.make(BREAKOUT), config)

    # It has the same wrappers, but not the catalog's mark on them.
    recreated = gymnasium.make(env.spec)

    assert str(recreated) == str(env)
    assert "has already changed the observations" in explain_refusal(recreated, config)


# --- errors ---------------------------------------------------------------------------------------


def test_wrap_rejects_an_environment_that_is_not_a_game():
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
def test_wrong_config_value_error_names_the_key(breakout, function, key, value, error):
    with pytest.raises(error, match=key):
        function(breakout, {key: value})


@pytest.fixture
def breakout_with_other_actions(breakout):
    """Breakout with two actions and no names for them, so that 1 may be FIRE or not."""
    return TransformAction(breakout, lambda action: action + 2, Discrete(2))


def test_fire_is_not_pressed_if_actions_were_changed(breakout_with_other_actions, list_wrappers):
    env = rlcatalog.wrap_env(breakout_with_other_actions)

    assert "FireOnReset" not in list_wrappers(env)


def test_life_loss_needs_unchanged_actions(breakout_with_other_actions):
    config = {"atari_terminal_on_life_loss": True}

    with pytest.raises(NotServedError, match=r"needs the action NOOP.*Discrete\(2\)") as caught:
        rlcatalog.wrap_env(breakout_with_other_actions, config)

    assert "TerminalOnLifeLoss" in str(caught.value)


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_policy_acts_on_observations_of_its_wrapper(framework, preference):
    env = gymnasium.make(BREAKOUT)
    config = {"dim": 10, "preprocessor_pref": preference}
    policy = rlcatalog.build(env=env, config=config, framework=framework)

    env = policy.wrap_env(env)
    obs, _ = env.reset()
    [action] = policy.act(obs[None]).action

    assert policy.observation_space == env.observation_space
    assert env.action_space.contains(action)


def make_two_games(**kwargs):
    return gymnasium.make_vec(BREAKOUT, num_envs=2, vectorization_mode="sync", **kwargs)


def test_vector_of_games_is_wrapped_when_it_is_made():
    envs = make_two_games(wrappers=[rlcatalog.wrap_env])
    policy = rlcatalog.build(env=envs)

    first_obs, _ = envs.reset()
    second_obs, *_ = envs.step(policy.act(first_obs).action)

    assert first_obs.shape == (2, 84, 84, 4)
    assert second_obs.shape == (2, 84, 84, 4)


def test_vector_of_games_without_wrappers_is_an_error():
    with pytest.raises(ModelContractError, match=r"lack the wrapper 'atari'.*wrap_env"):
        rlcatalog.build(env=make_two_games())


def test_explanation_imports_neither_emulator_nor_image_library(tmp_path):
    program = """
import sys, gymnasium, rlcatalog

env = gymnasium.make("CartPole-v1")
_, verdicts = rlcatalog.default_catalog().explain_wrapping(env)
assert "atari" in [part.name for part, _ in verdicts]
print({"cv2", "ale_py", "torch", "tensorflow"} & set(sys.modules))
"""

    run = warm.run(["-c", program], tmp_path, frameworks=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout == "set()\n"


# --- keys without effect --------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize(
    ("key", "value"), [("framestack", 2), ("dim", 42), ("grayscale", True), ("zero_mean", False)]
)
@pytest.mark.parametrize("obs_type", ["rgb", "ram"])
@pytest.mark.parametrize("preference", ["deepmind", "rllib", None])
def test_key_is_unread_only_if_it_changes_nothing(wrap_game, preference, obs_type, key, value):
    config = {"preprocessor_pref": preference}
    config_with_key = {**config, key: value}
    env = wrap_game("ALE/Pong-v5", config, obs_type=obs_type)
    env_with_key = wrap_game("ALE/Pong-v5", config_with_key, obs_type=obs_type)

    explanation = rlcatalog.explain(
        env_with_key.observation_space, env_with_key.action_space, config_with_key
    )

    obs, _ = env.reset(seed=0)
    obs_with_key, _ = env_with_key.reset(seed=0)
    has_same_space = env_with_key.observation_space == env.observation_space
    if has_same_space and np.array_equal(obs_with_key, obs):
        assert explanation.as_dict()["unread"] == [key]
    else:
        assert explanation.as_dict()["unread"] == []
