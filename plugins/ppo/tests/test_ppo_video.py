"""Films and windows of what `evaluate` plays: read back, and counted against an episode played by
hand.
"""

import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from films import frames, hide_screen

import rlcatalog
from rlcatalog.errors import ConfigError, MissingExtraError, NotServedError
from rlcatalog.plugins import install_hint
from rlcatalog_ppo import video
from rlcatalog_ppo.commands import evaluate
from rlcatalog_ppo.environments import EnvMaker, vector
from rlcatalog_runs.evaluation import play
from rlcatalog_runs.seeds import SeedStream, derive_seed


class Screen(gym.Env):
    """Shows the step it is at as a colour; episodes of 3 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12.5}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2)
    played = 0

    def __init__(self, render_mode=None, fault=None, modes=None):
        self.render_mode, self.fault = render_mode, fault
        if modes is not None:
            self.metadata = {**self.metadata, "render_modes": modes}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Screen.played += 1
        self.t = 0
        if self.render_mode == "human":
            self.render()
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t == 3, False, {}

    def render(self):
        if self.fault == "missing":
            raise gym.error.DependencyNotInstalled(
                "paint is not installed, run `pip install paint`"
            )
        if self.fault == "broken":
            raise RuntimeError("no paint")
        frame = np.full((21, 31, 3), (40 * self.t, 250, 10), np.uint8)
        return {
            "none": None,
            "float": frame / 255,
            "grows": np.full((21 + self.t, 31, 3), 9, np.uint8),
        }.get(self.fault, frame)


gym.register("Screen-v0", Screen, disable_env_checker=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function: an environment's id → a policy for it, saved."""
    folder = tmp_path_factory.mktemp("policies")

    def save(env_id):
        if not (folder / env_id).exists():
            env = gym.make(env_id)
            rlcatalog.build(env=env, config={"fcnet_hiddens": [8]}, framework="torch").save(
                folder / env_id
            )
        return folder / env_id

    return save


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    """Each test begins without a display, and without what filming says to SDL."""
    hide_screen(monkeypatch)


def by_hand(policy, episodes, seed):
    """Return the frames of episodes of CartPole, with Gymnasium alone: one for each observation."""
    env, found = gym.make("CartPole-v1", render_mode="rgb_array"), []
    for episode in range(episodes):
        begin = derive_seed(seed, SeedStream.EVALUATION) if episode == 0 else None
        obs, _ = env.reset(seed=begin)
        found.append(env.render())
        done = False
        while not done:
            obs, _, terminated, truncated, _ = env.step(policy.act([obs], explore=False).action[0])
            found.append(env.render())
            done = terminated or truncated
    env.close()
    return found


@pytest.mark.parametrize("ending", ["mp4", pytest.param("GIF", marks=pytest.mark.attack)])
def test_a_film_of_two_episodes_shows_both_from_first_to_last_frame(
    ending, saved, tmp_path, capsys
):
    path = tmp_path / "films" / f"cartpole.{ending}"
    evaluate(saved("CartPole-v1"), env="CartPole-v1", episodes=2, seed=7, video=path)
    expected = by_hand(rlcatalog.load(saved("CartPole-v1")), 2, 7)
    found, rate = frames(path)
    assert len(found) == len(expected) > 10
    assert rate == 50  # what CartPole says of itself
    for one, other in zip(found, expected, strict=True):
        assert one.shape == (400, 600, 3)
        assert np.abs(one.astype(int) - other).mean() < 3  # what either codec loses
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == f"video: {path} (episodes: 2, frames: {len(expected)})"
    assert printed[-1] == f"mean return {len(expected) / 2 - 1:.2f}"  # CartPole pays 1 a step
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.attack  # the parts are in test_ppo_film_parts.py
def test_the_first_of_several_environments_is_filmed_and_returns_are_as_ever(saved, tmp_path):
    policy = rlcatalog.load(saved("CartPole-v1"))
    film = video.Film(tmp_path / "film.mp4")
    envs = video.filmed(
        lambda mode: gym.make("CartPole-v1", render_mode=mode), "CartPole-v1", film, 20
    )
    assert envs.num_envs == 4
    found = play(policy, envs, 20, seed=3)
    envs.close()
    film.write()
    assert found == play(policy, vector(lambda: gym.make("CartPole-v1"), 4), 20, seed=3)
    assert (film.episodes, film.frames) == (5, len(frames(film.path)[0]))
    assert film.frames == len(by_hand(policy, 5, 3))


@pytest.mark.parametrize(
    ("episodes", "side_by_side", "filmed"), [(1, 1, 1), (7, 1, 5), (10, 2, 5), (100, 20, 5)]
)
def test_up_to_five_episodes_are_filmed(episodes, side_by_side, filmed, saved, tmp_path):
    film = video.Film(tmp_path / "film.mp4")
    envs = video.filmed(lambda mode: Screen(mode), "Screen", film, episodes)
    play(rlcatalog.load(saved("Screen-v0")), envs, episodes)
    assert (envs.num_envs, film.episodes, film.frames) == (side_by_side, filmed, 4 * filmed)
    film.write()
    found, rate = frames(film.path)
    # The codec wants even sizes.
    assert (len(found), rate, found[0].shape) == (4 * filmed, 12.5, (22, 32, 3))
    assert [round(float(one[:21, :31, 0].mean()) / 40) for one in found] == [0, 1, 2, 3] * filmed
    assert np.abs(found[3][21:, 31:].astype(int) - (120, 250, 10)).max() < 20  # more of the same


def test_each_frame_of_a_gif_has_its_own_colours(tmp_path):
    film, screen = video.Film(tmp_path / "film.gif"), Screen()
    screen.reset()
    for screen.t in range(4):
        film.add(screen.render())
    film.write()
    for one, step in zip(frames(film.path)[0], range(4), strict=True):
        assert one.shape == (21, 31, 3)
        assert np.abs(one.astype(int) - (40 * step, 250, 10)).max() < 20


def test_atari_is_filmed_in_its_own_colours(tmp_path):
    config = {"conv_filters": [[4, 8, 8], [8, 4, 4]], "conv_flatten": True}
    catalog = rlcatalog.default_catalog()

    def make(mode):
        return EnvMaker(
            "ale_py:ALE/Pong-v5", {"max_episode_steps": 40, "render_mode": mode}, config, catalog
        )()

    film = video.Film(tmp_path / "pong.mp4")
    envs = video.filmed(make, "ALE/Pong-v5", film, 1)
    play(rlcatalog.build(env=envs, config=config, framework="torch"), envs, 1, seed=0)
    envs.close()
    film.write()
    found, _ = frames(film.path)
    assert len(found) == film.frames > 5
    assert found[-1].shape == (210, 160, 3)
    brown = found[-1][100, 20].astype(int)  # Pong's field, (144, 72, 17)
    assert np.abs(brown - (144, 72, 17)).max() < 12


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["video", "render"])
@pytest.mark.parametrize(
    ("modes", "named"), [(["ansi", "svg"], "It has: 'ansi', 'svg'."), ([], "It has: none.")]
)
def test_without_the_render_mode_nothing_is_played(
    option, modes, named, saved, tmp_path, monkeypatch
):
    monkeypatch.setattr(Screen, "metadata", {"render_modes": modes})
    monkeypatch.setattr(Screen, "played", 0)
    wanted = {"video": "rgb_array", "render": "human"}[option]
    value = tmp_path / "film.mp4" if option == "video" else True
    with pytest.raises(NotServedError) as error:
        evaluate(saved("Screen-v0"), env="Screen-v0", **{option: value})
    assert (
        str(error.value)
        == f"--{option}: environment Screen-v0 has no render mode {wanted!r}. {named}"
    )
    assert Screen.played == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("none", NotServedError, r"frame 1: expected uint8 \[height, width, 3\], found None"),
        (
            "float",
            NotServedError,
            r"frame 1: expected uint8 \[height, width, 3\], found float64 \[21, 31, 3\]",
        ),
        (
            "grows",
            NotServedError,
            r"frame 2: expected uint8 \[21, 31, 3\], found uint8 \[22, 31, 3\]",
        ),
        ("broken", NotServedError, "cannot be rendered as 'rgb_array': RuntimeError: no paint"),
        (
            "missing",
            MissingExtraError,
            "a package that renders it is not installed: paint is not installed",
        ),
    ],
)
def test_film_that_fails_leaves_the_former_file(fault, error, message, saved, tmp_path):
    path = tmp_path / "film.mp4"
    path.write_text("the former one")
    film = video.Film(path)
    envs = video.filmed(lambda mode: Screen(mode, fault), "Screen", film, 2)
    with pytest.raises(error, match=message):
        play(rlcatalog.load(saved("Screen-v0")), envs, 2)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("film.mp4", "the former one")
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("film.avi", r"expected a file that ends in \.mp4 or \.gif"),
        ("film", r"expected a file that ends in \.mp4 or \.gif"),
        ("folder.mp4", r"folder\.mp4 is a folder"),
        ("file/film.mp4", "its folder cannot be created"),
    ],
)
def test_files_that_hold_no_film_are_refused(path, message, tmp_path):
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=message):
        video.Film(tmp_path / path)


def test_a_folder_that_may_not_be_written_into_is_found_before_playing(tmp_path, monkeypatch):
    monkeypatch.setattr(video.os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ConfigError, match="its folder is not writable"):
        video.Film(tmp_path / "film.mp4")


def test_without_its_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(video, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-ppo[video]"))):
        video.Film(Path("film.mp4"))


def test_film_and_a_window_at_once_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="--video and --render"):
        evaluate(tmp_path, video=tmp_path / "film.mp4", render=True)


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.attack
def test_window_shows_one_environment(saved, monkeypatch, capsys):
    import pygame

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # draws into nothing
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    drawn, flip = [], pygame.display.flip
    monkeypatch.setattr(
        pygame.display,
        "flip",
        lambda: (drawn.append(pygame.display.get_surface().get_size()), flip()),
    )
    evaluate(saved("CartPole-v1"), env="CartPole-v1", episodes=2, seed=7, render=True)
    monkeypatch.undo()
    assert drawn == [(600, 400)] * len(drawn)
    # The last episode's end resets the environment once more; Gymnasium's CartPole draws resets
    # too.
    assert len(drawn) == len(by_hand(rlcatalog.load(saved("CartPole-v1")), 2, 7)) + 1
    assert "mean return" in capsys.readouterr().out


def test_without_a_display_a_window_is_refused(saved, monkeypatch):
    monkeypatch.setattr(video.sys, "platform", "linux")
    with pytest.raises(NotServedError, match="there is no display for a window"):
        evaluate(saved("CartPole-v1"), env="CartPole-v1", render=True)


def mesa():
    """Return whether the process has loaded the LLVM that Mesa draws with."""
    return "libLLVM" in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="windows are opened without X elsewhere"
)
def test_display_that_is_not_there_is_refused(saved, monkeypatch):
    """SDL draws nowhere then, and says nothing."""
    import pygame

    pygame.quit()
    before = mesa()
    monkeypatch.setenv("DISPLAY", ":4711")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    with pytest.raises(NotServedError, match="no window opened on the display ':4711'"):
        evaluate(saved("CartPole-v1"), env="CartPole-v1", episodes=1, render=True)
    pygame.quit()
    assert mesa() == before  # beside TensorFlow it ends the process


@pytest.mark.parametrize(
    ("fault", "error"), [("broken", NotServedError), ("missing", MissingExtraError)]
)
def test_window_that_does_not_open_says_so(fault, error, saved, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    envs = video.windowed(lambda mode: Screen(mode, fault, ["human"]), "Screen")
    with pytest.raises(error, match="Environment Screen"):
        play(rlcatalog.load(saved("Screen-v0")), envs, 1)
