"""Films and windows by their parts: sizes, speeds, counts, which frames are taken, which errors are
raised.
"""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from films import frames, hide_screen

from rlcatalog.errors import NotServedError
from rlcatalog_ppo import video
from rlcatalog_ppo.video import Film, Filmed, Windowed, filmed, windowed


class Screen(gym.Env):
    """Ends after `limit` steps, by itself or cut; its frames say how many were drawn."""

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012
    observation_space, action_space = gym.spaces.Box(0, 9, (1,)), gym.spaces.Discrete(2)

    def __init__(self, mode=None, limit=2, cut=False, fails=False):
        self.render_mode, self.limit, self.cut, self.fails = mode, limit, cut, fails
        self.closed = self.drawn = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fails:
            raise RuntimeError("no paint")
        self.t = 0
        return np.zeros(1, np.float32), {"seed": seed, "options": options}

    def step(self, action):
        self.t += 1
        over = self.t == self.limit
        return np.ones(1, np.float32), 1.0, over and not self.cut, over and self.cut, {}

    def render(self):
        self.drawn += 1
        return self.drawn

    def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    hide_screen(monkeypatch)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("a.mp4", (20, 31, 3), (20, 32)),
        ("b.MP4", (21, 30, 3), (22, 30)),
        ("c.gif", (5, 3, 3), (5, 3)),
        ("d.mp4", (16, 20, 3), (16, 20)),
    ],
)
def test_frames_are_padded_to_what_the_codec_takes(name, shape, size, tmp_path):
    film = Film(tmp_path / "some" / "where" / name)
    assert (film.fps, film.frames, film.episodes) == (30.0, 0, 0)
    frame = np.zeros(shape, np.uint8)
    frame[:, -1], frame[-1] = 250, 250
    for count in (1, 2, 3):
        film.add(frame)
        assert film.frames == count
    film.write()
    found, rate = frames(film.path)
    assert [one.shape for one in found] == [(*size, 3)] * 3
    assert rate == 30 or name.endswith("gif")
    assert found[1][-1, -1].min() > 200  # the edge goes on
    assert found[1][1, shape[1] - 1].min() > 150  # and nothing is stretched
    assert found[1][: shape[0] - 2, : shape[1] - 2].max() < 60
    assert Film(film.path).frames == 0  # its folder may be there already


@pytest.mark.parametrize("rate", [Fraction(1, 8), Fraction(30000, 1001)])
def test_film_has_the_rate_of_its_environment(rate, tmp_path):
    film = Film(tmp_path / "film.mp4")
    film.fps = float(rate)
    film.add(np.zeros((16, 16, 3), np.uint8))
    film.write()
    assert frames(film.path)[1] == rate


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 4, 3)),
        np.zeros((4, 4, 3, 1), np.uint8),
        np.zeros((3, 4, 1), np.uint8),
    ],
    ids=lambda frame: f"{frame.dtype}{frame.shape}",
)
def test_array_that_is_not_an_image_is_named_by_its_form(frame, tmp_path):
    film = Film(tmp_path / "film.gif")
    message = (
        f"--video: frame 1: expected uint8 [height, width, 3], found {frame.dtype}"
        f" {list(frame.shape)}."
    )
    with pytest.raises(NotServedError) as caught:
        film.add(frame)
    assert str(caught.value) == message
    film.add(np.zeros((4, 6, 3), np.uint8))
    for other in (np.zeros((6, 4, 3), np.uint8), np.zeros((4, 6, 3), np.int8)):
        with pytest.raises(
            NotServedError, match=r"frame 2: expected uint8 \[4, 6, 3\], found u?int8"
        ):
            film.add(other)
    with pytest.raises(NotServedError, match=r"frame 2: expected uint8 \[4, 6, 3\], found 'x'"):
        film.add("x")
    assert film.frames == 1


def test_gif_keeps_the_colours_of_its_frames(tmp_path):
    film, colours = (
        Film(tmp_path / "film.gif"),
        np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8),
    )
    for frame in colours:
        film.add(frame)
    film.write()
    for found, frame in zip(frames(film.path)[0], colours, strict=True):
        assert np.abs(found.astype(int) - frame).max() < 40
        assert np.abs(found.astype(int) - frame).mean() < 12


# --- which frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("episodes", [1, 2])
def test_first_episodes_are_filmed_from_reset_to_end(cut, episodes):
    taken = []
    film = SimpleNamespace(episodes=0, add=taken.append)
    env = Filmed(Screen("rgb_array", cut=cut), film, episodes)
    counts = []
    for episode in range(3):
        assert env.reset(seed=episode, options={"a": 1})[1] == {
            "seed": episode,
            "options": {"a": 1},
        }
        assert env.step(0)[2:4] == (False, False)
        counts.append(film.episodes)
        assert env.step(0)[1:4] == (1.0, not cut, cut)
        counts.append(film.episodes)
    assert taken == list(range(1, 3 * episodes + 1))
    assert counts == ([0, 1, 1, 1, 1, 1] if episodes == 1 else [0, 1, 1, 2, 2, 2])


@pytest.mark.parametrize(
    ("fps", "expected"),
    [
        (None, 30.0),
        (12.5, 12.5),
        (60, 60.0),
        (0.5, 0.5),
        (0, 30.0),
        (-3, 30.0),
        (1000, 1000.0),
        (1000.5, 30.0),
        ("fast", 30.0),
    ],
)
def test_speed_is_the_environments_if_it_has_one(fps, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(Screen, "metadata", {"render_modes": ["rgb_array"], "render_fps": fps})
    film = Film(tmp_path / "film.gif")
    filmed(Screen, "Screen", film, 1)
    assert film.fps == expected


@pytest.mark.parametrize(
    ("episodes", "count", "wanted"),
    [(1, 1, 1), (4, 1, 4), (5, 1, 5), (9, 1, 5), (14, 2, 5), (1000, 20, 5)],
)
def test_first_environment_alone_is_filmed(episodes, count, wanted):
    made, film = [], SimpleNamespace(episodes=0, add=lambda frame: None, fps=30.0)
    envs = filmed(lambda mode: made.append(mode) or Screen(mode), "Screen", film, episodes)
    assert made == [None, "rgb_array", *[None] * (count - 1)]  # the first was made for its metadata
    assert envs.num_envs == count
    assert [isinstance(env.env, Filmed) for env in envs.envs] == [True] + [False] * (count - 1)
    for _ in range(wanted + 1):
        envs.reset()
        for _ in range(2):
            envs.step(np.zeros(count, int))
    assert film.episodes == wanted
    assert (os.environ["SDL_VIDEODRIVER"], os.environ["SDL_AUDIODRIVER"]) == ("dummy", "dummy")


def test_display_that_is_chosen_stays(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    filmed(Screen, "Screen", SimpleNamespace(episodes=0, fps=1.0), 1)
    assert os.environ["SDL_VIDEODRIVER"] == "x11"


@pytest.mark.parametrize(
    ("modes", "named"),
    [
        ([None, "ansi", "svg"], "It has: 'ansi', 'svg'."),
        ([None], "It has: none."),
        (None, "It has: none."),
    ],
)
@pytest.mark.parametrize("option", ["--video", "--render"])
def test_a_render_mode_that_is_missing_is_named_and_the_environment_closed(
    option, modes, named, monkeypatch
):
    monkeypatch.setattr(Screen, "metadata", {"render_modes": modes})
    made = []

    def make(mode):
        made.append(Screen(mode))
        return made[-1]

    wanted = "rgb_array" if option == "--video" else "human"
    with pytest.raises(NotServedError) as caught:
        filmed(make, "Screen", None, 1) if option == "--video" else windowed(make, "Screen")
    assert (
        str(caught.value) == f"{option}: environment Screen has no render mode {wanted!r}. {named}"
    )
    assert [env.closed for env in made] == [1]


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", None])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("modes", [["human"], ["rgb_array"]])
def test_window_needs_a_display_on_linux(variable, platform, modes, monkeypatch):
    monkeypatch.setattr(video.sys, "platform", platform)
    monkeypatch.setattr(Screen, "metadata", {"render_modes": modes})
    if variable is not None:
        monkeypatch.setenv(variable, "here")
    if variable is None and platform == "linux":
        with pytest.raises(NotServedError, match="there is no display for a window"):
            windowed(Screen, "Screen")
    else:
        envs = windowed(Screen, "Screen")
        assert [(env.count, type(env.env), env.env.env.render_mode) for env in envs.envs] == [
            (1, Windowed, "human")
        ]
    assert os.environ["SDL_FRAMEBUFFER_ACCELERATION"] == "0"


@pytest.mark.parametrize(
    ("initialised", "driver", "opens"),
    [
        (True, "x11", True),
        (True, "offscreen", False),
        (False, "offscreen", True),
        (None, None, True),
    ],
)
def test_window_that_pygame_draws_nowhere_is_an_error(initialised, driver, opens, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":7")
    display = SimpleNamespace(get_init=lambda: initialised, get_driver=lambda: driver)
    monkeypatch.setitem(sys.modules, "pygame", SimpleNamespace(display=display))
    if initialised is None:
        monkeypatch.delitem(sys.modules, "pygame")
    env = Windowed(Screen("human"))
    if opens:
        assert env.reset(seed=4, options={"a": 1})[1] == {"seed": 4, "options": {"a": 1}}
    for _ in range(2):
        if not opens:
            with pytest.raises(
                NotServedError, match="--render: no window opened on the display ':7'"
            ):
                env.reset()


def test_only_the_reset_that_opens_the_window_is_blamed_on_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    screen = Screen("human", fails=True)
    env = Windowed(screen)
    with pytest.raises(
        NotServedError,
        match="Environment Screen cannot be rendered as 'human': RuntimeError: no paint",
    ):
        env.reset()
    screen.fails = False
    env.reset()
    screen.fails = True
    with pytest.raises(RuntimeError, match=r"^no paint$"):
        env.reset()


def test_environment_is_named_by_its_id_if_it_has_one():
    class Broken(gym.Wrapper):
        def render(self):
            raise RuntimeError("no paint")

    film = SimpleNamespace(episodes=0, add=None)
    for env, name in (
        (gym.make("CartPole-v1", render_mode="rgb_array"), "CartPole-v1"),
        (Screen("rgb_array"), "Screen"),
    ):
        with pytest.raises(
            NotServedError,
            match=f"Environment {name} cannot be rendered as 'rgb_array': RuntimeError",
        ):
            Filmed(Broken(env), film, 1).reset()
