"""Where episodes of Atari games begin and end: FIRE, and lost lives."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import AtariPreprocessing

from rlcatalog.errors import NotServedError
from rlcatalog_atari.episodes import FireOnReset, TerminalOnLifeLoss

NO_SKIP = "BreakoutNoFrameskip-v4"  # no sticky actions: what happens, happens always
NOOP, FIRE = 0, 1


def play_until_end(env, action, most=2000):
    """Repeat an action until the episode ends; return the last step."""
    for _ in range(most):
        step = env.step(action)
        if step[2] or step[3]:
            return step
    raise AssertionError(f"no end after {most} steps")


# --- FIRE -----------------------------------------------------------------------------------------


def test_fire_is_pressed_or_the_game_would_not_start(wrapped):
    fired, bare = wrapped(NO_SKIP), AtariPreprocessing(gymnasium.make(NO_SKIP))
    for env in (fired, bare):
        env.reset(seed=0)
        for _ in range(60):
            env.step(NOOP)
    assert fired.unwrapped.ale.lives() == 4  # the ball was in play and fell
    assert bare.unwrapped.ale.lives() == 5


@pytest.mark.parametrize(
    ("env_id", "pressed"), [("ALE/Breakout-v5", True), ("ALE/Freeway-v5", False)]
)
def test_fire_is_pressed_where_there_is_such_a_button(wrapped, layers, env_id, pressed):
    env = wrapped(env_id)
    assert (
        ("FireOnReset" in layers(env)) == pressed == ("FIRE" in env.unwrapped.get_action_meanings())
    )


def test_pressing_a_button_that_is_not_there_is_refused():
    with pytest.raises(NotServedError, match="FireOnReset needs the action FIRE"):
        FireOnReset(gymnasium.make("ALE/Freeway-v5"))


# --- a scripted game ------------------------------------------------------------------------------


class Scripted(gymnasium.Env):
    """A game whose steps are written down: lives after the step, and whether it ends the game or is
    cut off.

    Observations say what happened: [number of games, steps in this game, last action].
    """

    observation_space = Box(-1, 255, (3,), np.int64)
    action_space = Discrete(2)
    continuous = False

    def __init__(self, *steps):
        self.script, self.games, self.ale = steps, 0, self

    def lives(self):
        return self.now

    def get_action_meanings(self):
        return ["NOOP", "FIRE"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games, self.at, self.now, self.options = self.games + 1, 0, 3, options
        return np.array([self.games, 0, -1]), {"lives": 3, "new": True}

    def step(self, action):
        self.now, end = self.script[self.at % len(self.script)]
        self.at += 1
        return (
            np.array([self.games, self.at, action]),
            1.0,
            end == "over",
            end == "cut",
            {"lives": self.now},
        )


def test_the_press_is_one_step_and_its_observation_the_first_one():
    obs, info = FireOnReset(Scripted((3, ""), (3, ""))).reset(seed=0)
    assert obs.tolist() == [1, 1, FIRE]
    assert info == {"lives": 3, "new": True}


@pytest.mark.parametrize("end", ["over", "cut"])
def test_a_press_that_ends_the_game_starts_another(end):
    env = FireOnReset(Scripted((0, end)))
    obs, _ = env.reset(seed=0, options={"a": 1})
    assert obs.tolist() == [2, 0, -1]
    assert env.unwrapped.options == {"a": 1}


def ends(env, steps):
    """Play; return for each step whether it terminated."""
    return [env.step(FIRE)[2] for _ in range(steps)]


def test_a_lost_life_ends_the_episode_and_a_no_op_begins_the_next():
    env = TerminalOnLifeLoss(Scripted((3, ""), (2, ""), (2, ""), (1, "")))
    env.reset()
    assert ends(env, 2) == [False, True]
    obs, info = env.reset()
    assert obs.tolist() == [1, 3, NOOP]
    assert info == {"lives": 2}
    assert ends(env, 1) == [True]


def test_a_bonus_life_ends_nothing():
    env = TerminalOnLifeLoss(Scripted((4, ""), (3, ""), (3, "")))
    env.reset()
    assert ends(env, 3) == [False, True, False]


def test_no_lives_left_is_not_the_end_before_the_game_says_so():
    env = TerminalOnLifeLoss(Scripted((1, ""), (0, ""), (0, ""), (0, "over")))
    env.reset()
    assert ends(env, 4) == [True, False, False, True]
    assert env.reset()[0].tolist() == [2, 0, -1]


@pytest.mark.parametrize("end", ["over", "cut"])
def test_a_life_lost_with_the_game_begins_a_new_game(end):
    env = TerminalOnLifeLoss(Scripted((2, end)))
    env.reset()
    _, _, terminated, truncated, _ = env.step(FIRE)
    assert (terminated, truncated) == (end == "over", end == "cut")
    assert env.reset()[0].tolist() == [2, 0, -1]


@pytest.mark.parametrize("end", ["over", "cut"])
def test_a_no_op_that_ends_the_game_begins_a_new_one(end):
    env = TerminalOnLifeLoss(Scripted((2, ""), (2, end)))
    env.reset()
    assert ends(env, 1) == [True]
    assert env.reset()[0].tolist() == [2, 0, -1]
    assert ends(env, 1) == [True]  # lives are counted anew: from 3 to 2


def test_a_seed_begins_a_new_game():
    env = TerminalOnLifeLoss(Scripted((2, "")))
    env.reset()
    assert ends(env, 1) == [True]
    assert env.reset(seed=5)[0].tolist() == [2, 0, -1]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_reset_at_another_time_begins_a_new_game(steps):
    env = TerminalOnLifeLoss(Scripted((2, ""), (2, ""), (2, "")))
    env.reset()
    ends(env, 1)
    env.reset()
    ends(env, steps)
    assert env.reset()[0].tolist() == [2, 0, -1]


# --- lives of a real game -------------------------------------------------------------------------


def test_episodes_are_whole_games_by_default(wrapped):
    env = wrapped(NO_SKIP, {"dim": 8})
    env.reset(seed=0)
    lives = []
    for _ in range(2000):
        *_, terminated, truncated, info = env.step(FIRE)
        lives.append(info["lives"])
        if terminated or truncated:
            break
    assert terminated
    assert env.unwrapped.ale.game_over()
    assert sorted(set(lives)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("preference", ["deepmind", "rllib"])
def test_each_life_is_an_episode_of_the_same_game_when_asked(wrapped, preference):
    config = {"atari_terminal_on_life_loss": True, "dim": 8, "preprocessor_pref": preference}
    env = wrapped(NO_SKIP, config)
    ale = env.unwrapped.ale
    env.reset(seed=0)
    frames = 0
    for left in (4, 3, 2, 1, 0):
        assert ale.lives() == left + 1
        play_until_end(env, FIRE)
        assert ale.lives() == left
        assert ale.game_over() == (left == 0)
        assert ale.getEpisodeFrameNumber() > frames  # one game, which goes on
        frames = ale.getEpisodeFrameNumber()
        env.reset()
        # One no-op, and with "deepmind" one press of FIRE, of 4 frames each.
        if left:
            assert ale.getEpisodeFrameNumber() - frames == (8 if preference == "deepmind" else 1)
    assert ale.lives() == 5
    assert ale.getEpisodeFrameNumber() < frames


def test_a_life_starts_with_the_ball_in_play(wrapped):
    env = wrapped(NO_SKIP, {"atari_terminal_on_life_loss": True, "dim": 8})
    env.reset(seed=0)
    for left in (4, 3):
        play_until_end(env, NOOP)  # without a press of the agent's own
        assert env.unwrapped.ale.lives() == left
        obs, _ = env.reset()
        # Nothing of the last life is seen.
        np.testing.assert_array_equal(obs, np.repeat(obs[..., :1], 4, axis=-1))


def test_gymnasiums_own_option_starts_a_new_game_at_each_lost_life():
    """As the docstring of ours says."""
    env = AtariPreprocessing(gymnasium.make(NO_SKIP), terminal_on_life_loss=True)
    env.reset(seed=0)
    play_until_end(env, FIRE)
    assert env.unwrapped.ale.lives() == 4
    env.reset()
    assert env.unwrapped.ale.lives() == 5
