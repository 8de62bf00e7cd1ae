"""Beginnings and ends of Atari episodes: the FIRE button, and lost lives."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcatalog.errors import NotServedError
from rlcatalog_atari.episodes import FireOnReset, TerminalOnLifeLoss

#: A game without sticky actions, so that the same actions always have the same effect.
BREAKOUT = "BreakoutNoFrameskip-v4"
NOOP = 0
FIRE = 1


# --- a scripted game ------------------------------------------------------------------------------


class Step(NamedTuple):
    """What a step of a scripted game leads to: lives, and whether it ends the game."""

    lives: int
    terminated: bool = False
    truncated: bool = False


class ScriptedGame(gymnasium.Env):
    """A game with 3 lives whose steps are given, and repeated if there are too few.

    Observations are [number of the game, steps in this game, last action].
    """

    observation_space = Box(-1, 255, (3,), np.int64)
    action_space = Discrete(2)
    continuous = False

    def __init__(self, *steps):
        self.script = steps
        self.number = 0
        #: Wrappers ask the emulator, `ale`, for the lives.
        self.ale = self

    def lives(self):
        return self.lives_left

    def get_action_meanings(self):
        return ["NOOP", "FIRE"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number += 1
        self.steps = 0
        self.lives_left = 3
        self.options = options
        return np.array([self.number, 0, -1]), {"lives": 3, "new": True}

    def step(self, action):
        step = self.script[self.steps % len(self.script)]
        self.steps += 1
        self.lives_left = step.lives
        obs = np.array([self.number, self.steps, action])
        return obs, 1.0, step.terminated, step.truncated, {"lives": step.lives}


#: The first observation of a second game, before any action.
SECOND_GAME = [2, 0, -1]


def play(env, steps):
    """Press FIRE in each step; return for each whether it terminated the episode."""
    return [env.step(FIRE)[2] for _ in range(steps)]


each_end = pytest.mark.parametrize("end", ["terminated", "truncated"])


# --- FIRE -----------------------------------------------------------------------------------------


def test_reset_presses_fire_once():
    env = FireOnReset(ScriptedGame(Step(lives=3)))

    obs, info = env.reset(seed=0)

    assert obs.tolist() == [1, 1, FIRE]  # the first game, after one step
    assert info == {"lives": 3, "new": True}  # the info of the reset


@each_end
def test_fire_that_ends_the_game_starts_another(end):
    env = FireOnReset(ScriptedGame(Step(lives=0, **{end: True})))

    obs, _ = env.reset(seed=0, options={"a": 1})

    assert obs.tolist() == SECOND_GAME
    assert env.unwrapped.options == {"a": 1}


def test_wrapped_breakout_starts_the_ball(wrap_game):
    env = wrap_game(BREAKOUT)
    env.reset(seed=0)

    for _ in range(60):
        env.step(NOOP)

    assert env.unwrapped.ale.lives() == 4  # of 5: the ball fell


def test_game_with_a_fire_button_is_wrapped(wrap_game, list_wrappers):
    env = wrap_game("ALE/Breakout-v5")

    assert "FIRE" in env.unwrapped.get_action_meanings()
    assert "FireOnReset" in list_wrappers(env)


def test_game_without_a_fire_button_is_not_wrapped(wrap_game, list_wrappers):
    env = wrap_game("ALE/Freeway-v5")

    assert "FIRE" not in env.unwrapped.get_action_meanings()
    assert "FireOnReset" not in list_wrappers(env)


def test_fire_on_reset_needs_a_fire_button():
    with pytest.raises(NotServedError, match="FireOnReset needs the action FIRE"):
        FireOnReset(gymnasium.make("ALE/Freeway-v5"))


# --- lost lives -----------------------------------------------------------------------------------


def test_lost_life_ends_the_episode():
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=3), Step(lives=2)))
    env.reset()

    assert play(env, steps=2) == [False, True]


def test_reset_after_a_lost_life_continues_the_game_with_a_no_op():
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=2), Step(lives=2), Step(lives=1)))
    env.reset()
    play(env, steps=1)

    obs, info = env.reset()

    assert obs.tolist() == [1, 2, NOOP]  # still the first game, after two steps
    assert info == {"lives": 2}
    assert play(env, steps=1) == [True]


def test_bonus_life_does_not_end_the_episode():
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=4), Step(lives=3), Step(lives=3)))
    env.reset()

    assert play(env, steps=3) == [False, True, False]


def test_last_life_lost_is_not_the_end_of_the_game():
    env = TerminalOnLifeLoss(
        ScriptedGame(Step(lives=1), Step(lives=0), Step(lives=0), Step(lives=0, terminated=True))
    )
    env.reset()

    assert play(env, steps=4) == [True, False, False, True]

    obs, _ = env.reset()
    assert obs.tolist() == SECOND_GAME


@each_end
def test_end_of_the_game_is_passed_on(end):
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=2, **{end: True})))
    env.reset()

    _, _, terminated, truncated, _ = env.step(FIRE)

    assert terminated == (end == "terminated")
    assert truncated == (end == "truncated")


@each_end
def test_reset_after_the_game_begins_another(end):
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=2, **{end: True})))
    env.reset()
    env.step(FIRE)

    obs, _ = env.reset()

    assert obs.tolist() == SECOND_GAME


@each_end
def test_noop_that_ends_the_game_begins_another(end):
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=2), Step(lives=2, **{end: True})))
    env.reset()
    assert play(env, steps=1) == [True]

    obs, _ = env.reset()  # its no-op ends the game

    assert obs.tolist() == SECOND_GAME
    assert play(env, steps=1) == [True]  # lives are counted anew: from 3 to 2


def test_reset_with_a_seed_begins_another_game():
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=2)))
    env.reset()
    assert play(env, steps=1) == [True]

    obs, _ = env.reset(seed=5)

    assert obs.tolist() == SECOND_GAME


@pytest.mark.parametrize("steps", [0, 1])
def test_reset_in_the_middle_of_a_life_begins_another_game(steps):
    env = TerminalOnLifeLoss(ScriptedGame(Step(lives=2)))
    env.reset()
    play(env, steps=1)
    env.reset()  # continues with the second life

    play(env, steps)
    obs, _ = env.reset()

    assert obs.tolist() == SECOND_GAME


# --- lost lives of a real game --------------------------------------------------------------------


def play_until_end(env, action):
    """Repeat an action until the episode ends."""
    for _ in range(2000):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return
    raise AssertionError("no end after 2000 steps")


def test_episodes_are_whole_games_by_default(wrap_game):
    env = wrap_game(BREAKOUT, {"dim": 8})  # small images are quick
    env.reset(seed=0)

    lives = set()
    terminated = False
    for _ in range(2000):  # more steps than a game has
        *_, terminated, truncated, info = env.step(FIRE)
        lives.add(info["lives"])
        if terminated or truncated:
            break

    assert terminated
    assert env.unwrapped.ale.game_over()
    assert lives == {0, 1, 2, 3, 4, 5}  # all were lost in one episode


@pytest.fixture(params=["deepmind", "rllib"])
def breakout_of_lives(request, wrap_game):
    """Breakout in which each of the 5 lives is an episode."""
    config = {
        "atari_terminal_on_life_loss": True,
        "dim": 8,
        "preprocessor_pref": request.param,
    }
    return wrap_game(BREAKOUT, config)


def test_lives_are_episodes_of_the_same_game(breakout_of_lives):
    env = breakout_of_lives
    ale = env.unwrapped.ale
    env.reset(seed=0)

    frames = 0
    for lives_left in (4, 3, 2, 1, 0):
        play_until_end(env, FIRE)

        assert ale.lives() == lives_left
        assert ale.game_over() == (lives_left == 0)
        # The frames are counted on, so it is the same game.
        assert ale.getEpisodeFrameNumber() > frames
        frames = ale.getEpisodeFrameNumber()
        env.reset()

    # The last reset has begun a new game.
    assert ale.lives() == 5
    assert ale.getEpisodeFrameNumber() < frames


@pytest.mark.parametrize(
    ("preference", "expected_frames"),
    [
        ("deepmind", 8),  # a no-op and FIRE, of four frames each
        ("rllib", 1),  # a no-op of one frame
    ],
)
def test_reset_after_a_lost_life_takes_few_frames(wrap_game, preference, expected_frames):
    config = {"atari_terminal_on_life_loss": True, "dim": 8, "preprocessor_pref": preference}
    env = wrap_game(BREAKOUT, config)
    env.reset(seed=0)
    play_until_end(env, FIRE)
    frames_before = env.unwrapped.ale.getEpisodeFrameNumber()

    env.reset()

    frames = env.unwrapped.ale.getEpisodeFrameNumber() - frames_before
    assert frames == expected_frames


def test_life_starts_with_the_ball_in_play(wrap_game):
    env = wrap_game(BREAKOUT, {"atari_terminal_on_life_loss": True, "dim": 8})
    env.reset(seed=0)

    for lives_left in (4, 3):
        play_until_end(env, NOOP)  # the agent does not press FIRE

        assert env.unwrapped.ale.lives() == lives_left
        env.reset()


def test_life_starts_without_frames_of_the_last_one(wrap_game):
    env = wrap_game(BREAKOUT, {"atari_terminal_on_life_loss": True, "dim": 8})
    env.reset(seed=0)
    play_until_end(env, NOOP)

    obs, _ = env.reset()

    # All four frames are the first one of the life.
    first_frame = obs[..., 0]
    for i in range(4):
        np.testing.assert_array_equal(obs[..., i], first_frame)
