"""Films and windows of a policy: files, filmed episodes, render modes, displays, errors."""

from __future__ import annotations

import os
import re
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace

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
from rlcatalog_ppo.video import Film, Filmed, Windowed, filmed, windowed
from rlcatalog_runs.evaluation import play
from rlcatalog_runs.seeds import SeedStream, derive_seed


class ColouredSteps(gym.Env):
    """Episodes of 3 steps, each with a colour: `40 * t` of red in step t.

    Args:
        render_mode: As in Gymnasium.
        fault: What is wrong with rendering: "missing package", "error", "no frame", "float frame"
            or "growing frame".
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 12.5}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2)
    resets = 0

    def __init__(self, render_mode=None, fault=None):
        self.render_mode = render_mode
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        ColouredSteps.resets += 1
        self.t = 0
        if self.render_mode == "human":
            self.render()
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t == 3, False, {}

    def render(self):
        if self.fault == "missing package":
            raise gym.error.DependencyNotInstalled(
                "paint is not installed, run `pip install paint`"
            )
        if self.fault == "error":
            raise RuntimeError("no paint")
        if self.fault == "no frame":
            return None
        if self.fault == "float frame":
            return np.zeros((21, 31, 3), np.float64)
        if self.fault == "growing frame":
            return np.full((21 + self.t, 31, 3), 9, np.uint8)
        return np.full((21, 31, 3), (40 * self.t, 250, 10), np.uint8)


gym.register("ColouredSteps-v0", ColouredSteps, disable_env_checker=True)


class NumberedFrames(gym.Env):
    """Episodes of 2 steps; each frame is the number of frames so far."""

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None, *, truncates=False, fails=False):
        self.render_mode = render_mode
        self.truncates = truncates
        self.fails = fails
        self.frames = 0
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fails:
            raise RuntimeError("no paint")
        self.t = 0
        return np.zeros(1, np.float32), {"seed": seed, "options": options}

    def step(self, action):
        self.t += 1
        is_last = self.t == 2
        terminated = is_last and not self.truncates
        truncated = is_last and self.truncates
        return np.ones(1, np.float32), 1.0, terminated, truncated, {}

    def render(self):
        self.frames += 1
        return self.frames

    def close(self):
        self.closed += 1


class ListFilm:
    """A film that keeps its frames in a list."""

    def __init__(self):
        self.taken = []
        self.episodes = 0
        self.fps = 30.0

    def add(self, frame):
        self.taken.append(frame)


@pytest.fixture(scope="module")
def save_policy(tmp_path_factory):
    """Return a function that saves a policy for an environment once, and returns its folder."""
    folder = tmp_path_factory.mktemp("policies")

    def save(env_id):
        if not (folder / env_id).exists():
            policy = rlcatalog.build(
                env=gym.make(env_id), config={"fcnet_hiddens": [8]}, framework="torch"
            )
            policy.save(folder / env_id)
        return folder / env_id

    return save


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    """Each test begins without a display, and without what filming sets for SDL."""
    hide_screen(monkeypatch)


def render_with_gymnasium(policy, *, episodes, seed):
    """Return the frames of episodes of CartPole, one for each observation."""
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    images = []
    for episode in range(episodes):
        # As `evaluate` does: the first reset has a seed, later ones go on from there.
        reset_seed = derive_seed(seed, SeedStream.EVALUATION) if episode == 0 else None
        obs, _ = env.reset(seed=reset_seed)
        images.append(env.render())
        done = False
        while not done:
            [action] = policy.act([obs], explore=False).action
            obs, _, terminated, truncated, _ = env.step(action)
            images.append(env.render())
            done = terminated or truncated
    env.close()
    return images


# --- evaluate --video -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mp4", pytest.param("GIF", marks=pytest.mark.attack)])
def test_film_shows_the_frames_that_gymnasium_renders(suffix, save_policy, tmp_path):
    path = tmp_path / "films" / f"cartpole.{suffix}"
    policy_folder = save_policy("CartPole-v1")

    evaluate(policy_folder, env="CartPole-v1", episodes=2, seed=7, video=path)

    images, rate = frames(path)
    expected = render_with_gymnasium(rlcatalog.load(policy_folder), episodes=2, seed=7)
    assert len(images) == len(expected) > 10
    assert rate == 50  # from CartPole's metadata
    for image, expected_image in zip(images, expected, strict=True):
        assert image.shape == (400, 600, 3)
        # Codecs lose a little.
        assert np.abs(image.astype(int) - expected_image).mean() < 3
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_evaluate_prints_the_film_and_the_mean_return(save_policy, tmp_path, capsys):
    path = tmp_path / "cartpole.mp4"
    policy_folder = save_policy("CartPole-v1")

    evaluate(policy_folder, env="CartPole-v1", episodes=2, seed=7, video=path)

    images = render_with_gymnasium(rlcatalog.load(policy_folder), episodes=2, seed=7)
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == f"video: {path} (episodes: 2, frames: {len(images)})"
    # CartPole pays 1 a step, and an episode has a frame more than steps.
    assert printed[-1] == f"mean return {len(images) / 2 - 1:.2f}"


def test_atari_is_filmed_in_its_own_colours(tmp_path):
    config = {"conv_filters": [[4, 8, 8], [8, 4, 4]], "conv_flatten": True}

    def make_env(render_mode):
        options = {"max_episode_steps": 40, "render_mode": render_mode}
        catalog = rlcatalog.default_catalog()
        return EnvMaker("ale_py:ALE/Pong-v5", options, config, catalog)()

    film = Film(tmp_path / "pong.mp4")
    envs = filmed(make_env, "ALE/Pong-v5", film, episodes=1)
    play(rlcatalog.build(env=envs, config=config, framework="torch"), envs, 1, seed=0)
    envs.close()
    film.write()

    images, _ = frames(film.path)
    assert len(images) == film.frames > 5
    assert images[-1].shape == (210, 160, 3)
    field = images[-1][100, 20].astype(int)
    brown = (144, 72, 17)
    assert np.abs(field - brown).max() < 12


def test_film_and_window_at_once_are_an_error(tmp_path):
    with pytest.raises(ConfigError, match="--video and --render"):
        evaluate(tmp_path, video=tmp_path / "film.mp4", render=True)


# --- which episodes are filmed --------------------------------------------------------------------


@pytest.mark.attack
def test_film_does_not_change_the_returns(save_policy, tmp_path):
    policy = rlcatalog.load(save_policy("CartPole-v1"))
    film = Film(tmp_path / "film.mp4")
    envs = filmed(
        lambda mode: gym.make("CartPole-v1", render_mode=mode), "CartPole-v1", film, episodes=20
    )
    assert envs.num_envs == 4

    returns = play(policy, envs, 20, seed=3)
    envs.close()
    film.write()

    assert returns == play(policy, vector(lambda: gym.make("CartPole-v1"), 4), 20, seed=3)
    assert film.episodes == 5
    assert film.frames == len(frames(film.path)[0])
    assert film.frames == len(render_with_gymnasium(policy, episodes=5, seed=3))


@pytest.mark.parametrize(
    ("episodes", "num_envs", "filmed_episodes"),
    [(1, 1, 1), (7, 1, 5), (10, 2, 5), (100, 20, 5)],
)
def test_film_shows_up_to_five_episodes(episodes, num_envs, filmed_episodes, save_policy, tmp_path):
    film = Film(tmp_path / "film.mp4")
    envs = filmed(ColouredSteps, "ColouredSteps", film, episodes)

    play(rlcatalog.load(save_policy("ColouredSteps-v0")), envs, episodes)
    film.write()

    assert envs.num_envs == num_envs
    assert film.episodes == filmed_episodes
    assert film.frames == 4 * filmed_episodes  # one at the reset, and one for each of 3 steps
    images, rate = frames(film.path)
    assert rate == 12.5
    # The red of step t is 40 * t.
    steps = [round(float(image[:21, :31, 0].mean()) / 40) for image in images]
    assert steps == [0, 1, 2, 3] * filmed_episodes


def play_with_filmed(*, episodes_to_film, truncates):
    """Play three episodes of two steps; return the film, and its episodes after each step."""
    film = ListFilm()
    env = Filmed(NumberedFrames("rgb_array", truncates=truncates), film, episodes_to_film)
    episodes_after_steps = []
    for _ in range(3):
        env.reset()
        for _ in range(2):
            env.step(0)
            episodes_after_steps.append(film.episodes)
    return film, episodes_after_steps


@pytest.mark.parametrize("truncates", [False, True], ids=["terminated", "truncated"])
def test_filmed_takes_one_episode(truncates):
    film, episodes_after_steps = play_with_filmed(episodes_to_film=1, truncates=truncates)

    assert film.taken == [1, 2, 3]  # of the reset and of two steps
    assert episodes_after_steps == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("truncates", [False, True], ids=["terminated", "truncated"])
def test_filmed_takes_two_episodes(truncates):
    film, episodes_after_steps = play_with_filmed(episodes_to_film=2, truncates=truncates)

    assert film.taken == [1, 2, 3, 4, 5, 6]
    assert episodes_after_steps == [0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("truncates", [False, True], ids=["terminated", "truncated"])
def test_filmed_passes_on_what_the_environment_returns(truncates):
    env = Filmed(NumberedFrames("rgb_array", truncates=truncates), ListFilm(), 1)

    _, info = env.reset(seed=4, options={"a": 1})
    assert info == {"seed": 4, "options": {"a": 1}}

    _, _, terminated, truncated, _ = env.step(0)
    assert not terminated
    assert not truncated

    _, reward, terminated, truncated, _ = env.step(0)
    assert reward == 1.0
    assert terminated == (not truncates)
    assert truncated == truncates


@pytest.mark.parametrize(
    ("episodes", "num_envs", "filmed_episodes"),
    [(1, 1, 1), (4, 1, 4), (5, 1, 5), (9, 1, 5), (14, 2, 5), (1000, 20, 5)],
)
def test_first_environment_alone_is_filmed(episodes, num_envs, filmed_episodes):
    render_modes = []

    def make_env(render_mode):
        render_modes.append(render_mode)
        return NumberedFrames(render_mode)

    film = ListFilm()
    envs = filmed(make_env, "NumberedFrames", film, episodes)
    for _ in range(filmed_episodes + 1):
        envs.reset()
        for _ in range(2):
            envs.step(np.zeros(num_envs, int))

    # One was made to read its metadata, before the one that is filmed and the others.
    assert render_modes == [None, "rgb_array"] + [None] * (num_envs - 1)
    assert envs.num_envs == num_envs
    are_filmed = [isinstance(env.env, Filmed) for env in envs.envs]
    assert are_filmed == [True] + [False] * (num_envs - 1)
    assert film.episodes == filmed_episodes


# --- files ----------------------------------------------------------------------------------------


def write_film(path, images):
    """Write a film; return its frames as they are read back, and their rate."""
    film = Film(path)
    for image in images:
        film.add(image)
    film.write()
    return frames(path)


@pytest.mark.parametrize(
    ("name", "shape", "shape_in_film"),
    [
        # H.264 needs even sizes.
        ("a.mp4", (20, 31, 3), (20, 32, 3)),
        ("b.MP4", (21, 30, 3), (22, 30, 3)),
        ("c.gif", (5, 3, 3), (5, 3, 3)),
        ("d.mp4", (16, 20, 3), (16, 20, 3)),
    ],
)
def test_frame_is_padded_with_its_edge(name, shape, shape_in_film, tmp_path):
    frame = np.zeros(shape, np.uint8)
    frame[:, -1] = 250
    frame[-1] = 250

    images, _ = write_film(tmp_path / name, [frame, frame, frame])

    assert [image.shape for image in images] == [shape_in_film] * 3
    height, width, _ = shape
    image = images[1]
    assert image[-1, -1].min() > 200  # the white edge goes on
    assert image[1, width - 1].min() > 150  # nothing is stretched: it is where it was
    assert image[: height - 2, : width - 2].max() < 60  # the rest is black


def test_padding_of_a_film_has_the_colour_of_its_edge(tmp_path):
    green = (120, 250, 10)

    images, _ = write_film(tmp_path / "film.mp4", [np.full((21, 31, 3), green, np.uint8)])

    padding = images[0][21:, 31:].astype(int)
    assert padding.shape == (1, 1, 3)
    assert np.abs(padding - green).max() < 20


def test_film_counts_its_frames(tmp_path):
    film = Film(tmp_path / "film.mp4")
    assert film.frames == 0

    for count in (1, 2, 3):
        film.add(np.zeros((16, 16, 3), np.uint8))
        assert film.frames == count


def test_film_has_thirty_frames_per_second_by_default(tmp_path):
    film = Film(tmp_path / "film.mp4")
    assert film.fps == 30.0
    assert film.episodes == 0

    _, rate = write_film(film.path, [np.zeros((16, 16, 3), np.uint8)])

    assert rate == 30


@pytest.mark.parametrize("rate", [Fraction(1, 8), Fraction(30000, 1001)])
def test_film_has_the_rate_of_its_environment(rate, tmp_path):
    film = Film(tmp_path / "film.mp4")
    film.fps = float(rate)
    film.add(np.zeros((16, 16, 3), np.uint8))
    film.write()

    assert frames(film.path)[1] == rate


def test_film_creates_its_folder(tmp_path):
    path = tmp_path / "some" / "where" / "film.gif"

    write_film(path, [np.zeros((4, 6, 3), np.uint8)])

    assert path.is_file()
    Film(path)  # the folder may exist


@pytest.mark.parametrize(
    ("fps", "expected"),
    [
        (12.5, 12.5),
        (60, 60.0),
        (0.5, 0.5),
        (1000, 1000.0),
        # Not a rate, or above 1000: the default.
        (None, 30.0),
        (0, 30.0),
        (-3, 30.0),
        (1000.5, 30.0),
        ("fast", 30.0),
    ],
)
def test_film_rate_is_read_from_the_metadata(fps, expected, tmp_path, monkeypatch):
    metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
    monkeypatch.setattr(NumberedFrames, "metadata", metadata)
    film = Film(tmp_path / "film.gif")

    filmed(NumberedFrames, "NumberedFrames", film, episodes=1)

    assert film.fps == expected


def test_gif_has_the_colours_of_each_frame(tmp_path):
    """A GIF has 256 colours, so that each frame has its own palette."""
    images = [np.full((21, 31, 3), (40 * t, 250, 10), np.uint8) for t in range(4)]

    gif_images, _ = write_film(tmp_path / "film.gif", images)

    for gif_image, image in zip(gif_images, images, strict=True):
        assert gif_image.shape == (21, 31, 3)
        assert np.abs(gif_image.astype(int) - image).max() < 20


def test_gif_has_frames_of_random_colours(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)

    gif_images, _ = write_film(tmp_path / "film.gif", images)

    for gif_image, image in zip(gif_images, images, strict=True):
        difference = np.abs(gif_image.astype(int) - image)
        assert difference.max() < 40
        assert difference.mean() < 12


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
def test_frame_that_is_not_an_image_is_an_error(frame, tmp_path):
    film = Film(tmp_path / "film.gif")

    with pytest.raises(NotServedError, match="--video: frame 1: expected uint8") as caught:
        film.add(frame)

    assert str(caught.value) == (
        "--video: frame 1: expected uint8 [height, width, 3], found"
        f" {frame.dtype} {list(frame.shape)}."
    )
    film.add(np.zeros((4, 6, 3), np.uint8))  # it was not begun with that shape
    assert film.frames == 1


@pytest.mark.parametrize(
    ("second_frame", "message"),
    [
        (np.zeros((6, 4, 3), np.uint8), "found uint8 [6, 4, 3]"),
        (np.zeros((4, 6, 3), np.int8), "found int8 [4, 6, 3]"),
        ("x", "found 'x'"),
    ],
    ids=["shape", "dtype", "text"],
)
def test_frame_that_differs_from_the_first_is_an_error(second_frame, message, tmp_path):
    film = Film(tmp_path / "film.gif")
    film.add(np.zeros((4, 6, 3), np.uint8))

    with pytest.raises(NotServedError, match=r"frame 2: expected uint8 \[4, 6, 3\]") as caught:
        film.add(second_frame)

    assert message in str(caught.value)
    assert film.frames == 1


# --- files that cannot be written -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (
            "no frame",
            NotServedError,
            r"frame 1: expected uint8 \[height, width, 3\], found None",
        ),
        (
            "float frame",
            NotServedError,
            r"frame 1: expected uint8 \[height, width, 3\], found float64 \[21, 31, 3\]",
        ),
        (
            "growing frame",
            NotServedError,
            r"frame 2: expected uint8 \[21, 31, 3\], found uint8 \[22, 31, 3\]",
        ),
        ("error", NotServedError, "cannot be rendered as 'rgb_array': RuntimeError: no paint"),
        (
            "missing package",
            MissingExtraError,
            "a package that renders it is not installed: paint is not installed",
        ),
    ],
    ids=["no frame", "float frame", "growing frame", "error", "missing package"],
)
def test_film_that_fails_leaves_the_old_file(fault, error, message, save_policy, tmp_path):
    path = tmp_path / "film.mp4"
    path.write_text("the old film")
    policy = rlcatalog.load(save_policy("ColouredSteps-v0"))
    envs = filmed(lambda mode: ColouredSteps(mode, fault), "ColouredSteps", Film(path), episodes=2)

    with pytest.raises(error, match=message):
        play(policy, envs, 2)

    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]
    assert path.read_text() == "the old film"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("film.avi", r"expected a file that ends in \.mp4 or \.gif"),
        ("film", r"expected a file that ends in \.mp4 or \.gif"),
        ("folder.mp4", r"folder\.mp4 is a folder"),
        ("file/film.mp4", "its folder cannot be created"),
    ],
)
def test_film_with_an_impossible_path_is_an_error(path, message, tmp_path):
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=message):
        Film(tmp_path / path)


def test_film_in_a_folder_without_write_access_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(video.os, "access", lambda path, mode: path != tmp_path)

    with pytest.raises(ConfigError, match="its folder is not writable"):
        Film(tmp_path / "film.mp4")


def test_film_without_the_encoder_names_the_extra(monkeypatch):
    # No module can be found, so neither can the encoder.
    monkeypatch.setattr(video, "find_spec", lambda name: None)

    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-ppo[video]"))):
        Film(Path("film.mp4"))


class FailingRender(gym.Wrapper):
    """Raises an error when it renders."""

    def render(self):
        raise RuntimeError("no paint")


def test_rendering_error_names_the_environment_id():
    env = FailingRender(gym.make("CartPole-v1", render_mode="rgb_array"))

    with pytest.raises(
        NotServedError, match="Environment CartPole-v1 cannot be rendered"
    ) as caught:
        Filmed(env, ListFilm(), 1).reset()

    assert " as 'rgb_array': RuntimeError" in str(caught.value)


def test_rendering_error_names_the_class_without_an_id():
    env = FailingRender(NumberedFrames("rgb_array"))

    with pytest.raises(NotServedError, match="NumberedFrames cannot be rendered") as caught:
        Filmed(env, ListFilm(), 1).reset()

    assert "Environment NumberedFrames" in str(caught.value)


# --- render modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "mode"),
    [({"video": "film.mp4"}, "rgb_array"), ({"render": True}, "human")],
    ids=["video", "render"],
)
@pytest.mark.parametrize(
    ("modes", "sentence"),
    [(["ansi", "svg"], "It has: 'ansi', 'svg'."), ([], "It has: none.")],
    ids=["other-modes", "no-modes"],
)
def test_evaluate_plays_nothing_without_the_render_mode(
    option, mode, modes, sentence, save_policy, tmp_path, monkeypatch
):
    policy_folder = save_policy("ColouredSteps-v0")
    monkeypatch.setattr(ColouredSteps, "metadata", {"render_modes": modes})
    monkeypatch.setattr(ColouredSteps, "resets", 0)
    if "video" in option:
        option = {"video": tmp_path / option["video"]}

    with pytest.raises(NotServedError, match="has no render mode") as caught:
        evaluate(policy_folder, env="ColouredSteps-v0", **option)

    [name] = option
    assert str(caught.value) == (
        f"--{name}: environment ColouredSteps-v0 has no render mode {mode!r}. {sentence}"
    )
    assert ColouredSteps.resets == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("modes", "sentence"),
    [
        ([None, "ansi", "svg"], "It has: 'ansi', 'svg'."),
        ([None], "It has: none."),
        (None, "It has: none."),
    ],
    ids=["other-modes", "mode-none", "no-modes"],
)
@pytest.mark.parametrize(
    ("make_envs", "message"),
    [
        pytest.param(
            partial(filmed, film=None, episodes=1),
            "--video: environment Name has no render mode 'rgb_array'.",
            id="video",
        ),
        pytest.param(
            windowed, "--render: environment Name has no render mode 'human'.", id="render"
        ),
    ],
)
def test_missing_render_mode_closes_the_environment(
    make_envs, message, modes, sentence, monkeypatch
):
    monkeypatch.setattr(NumberedFrames, "metadata", {"render_modes": modes})
    envs = []

    def make_env(render_mode):
        envs.append(NumberedFrames(render_mode))
        return envs[-1]

    with pytest.raises(NotServedError, match="has no render mode") as caught:
        make_envs(make_env, "Name")

    assert str(caught.value) == f"{message} {sentence}"
    assert [env.closed for env in envs] == [1]


# --- windows --------------------------------------------------------------------------------------


def test_filming_tells_sdl_to_use_no_screen_and_no_sound():
    filmed(NumberedFrames, "NumberedFrames", ListFilm(), episodes=1)

    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ["SDL_AUDIODRIVER"] == "dummy"


def test_filming_keeps_an_sdl_driver_from_the_user(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")

    filmed(NumberedFrames, "NumberedFrames", ListFilm(), episodes=1)

    assert os.environ["SDL_VIDEODRIVER"] == "x11"


@pytest.mark.attack
def test_window_shows_one_environment(save_policy, monkeypatch, capsys):
    import pygame

    # SDL draws, but not on a screen.
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    drawn_sizes = []
    flip = pygame.display.flip

    def record_and_flip():
        drawn_sizes.append(pygame.display.get_surface().get_size())
        flip()

    monkeypatch.setattr(pygame.display, "flip", record_and_flip)
    policy_folder = save_policy("CartPole-v1")
    evaluate(policy_folder, env="CartPole-v1", episodes=2, seed=7, render=True)
    monkeypatch.undo()

    assert set(drawn_sizes) == {(600, 400)}
    # The environment is reset after the last episode too, and Gymnasium's CartPole draws resets.
    images = render_with_gymnasium(rlcatalog.load(policy_folder), episodes=2, seed=7)
    assert len(drawn_sizes) == len(images) + 1
    assert "mean return" in capsys.readouterr().out


def test_window_without_a_display_is_an_error(save_policy, monkeypatch):
    monkeypatch.setattr(video.sys, "platform", "linux")

    with pytest.raises(NotServedError, match="there is no display for a window"):
        evaluate(save_policy("CartPole-v1"), env="CartPole-v1", render=True)


@pytest.mark.parametrize(
    ("platform", "variable"),
    [
        ("linux", "DISPLAY"),
        ("linux", "WAYLAND_DISPLAY"),
        ("linux", "SDL_VIDEODRIVER"),
        ("darwin", "DISPLAY"),
        ("darwin", "WAYLAND_DISPLAY"),
        ("darwin", "SDL_VIDEODRIVER"),
        ("darwin", None),  # macOS needs no variable
    ],
)
@pytest.mark.parametrize("mode", ["human", "rgb_array"])
def test_window_opens_with_a_display(platform, variable, mode, monkeypatch):
    monkeypatch.setattr(video.sys, "platform", platform)
    monkeypatch.setattr(NumberedFrames, "metadata", {"render_modes": [mode]})
    if variable is not None:
        monkeypatch.setenv(variable, "here")

    [env] = windowed(NumberedFrames, "NumberedFrames").envs

    assert env.count == 1
    assert type(env.env) is Windowed
    assert env.env.env.render_mode == "human"
    assert os.environ["SDL_FRAMEBUFFER_ACCELERATION"] == "0"


@pytest.mark.parametrize("mode", ["human", "rgb_array"])
def test_window_needs_a_display_on_linux(mode, monkeypatch):
    monkeypatch.setattr(video.sys, "platform", "linux")
    monkeypatch.setattr(NumberedFrames, "metadata", {"render_modes": [mode]})

    with pytest.raises(NotServedError, match="there is no display for a window"):
        windowed(NumberedFrames, "NumberedFrames")

    assert os.environ["SDL_FRAMEBUFFER_ACCELERATION"] == "0"


def has_loaded_llvm():
    """Return whether the process has loaded the LLVM that Mesa draws with."""
    return "libLLVM" in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="windows are opened without X elsewhere"
)
def test_window_on_a_missing_display_is_an_error(save_policy, monkeypatch):
    """SDL would draw nowhere, without an error."""
    import pygame

    pygame.quit()
    loaded_before = has_loaded_llvm()
    monkeypatch.setenv("DISPLAY", ":4711")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")

    with pytest.raises(NotServedError, match="no window opened on the display ':4711'"):
        evaluate(save_policy("CartPole-v1"), env="CartPole-v1", episodes=1, render=True)

    pygame.quit()
    # A second LLVM beside TensorFlow's would end the process.
    assert has_loaded_llvm() == loaded_before


@pytest.mark.parametrize(
    ("fault", "error"), [("error", NotServedError), ("missing package", MissingExtraError)]
)
def test_window_that_cannot_be_drawn_is_an_error(fault, error, save_policy, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    policy = rlcatalog.load(save_policy("ColouredSteps-v0"))
    envs = windowed(lambda mode: ColouredSteps(mode, fault), "ColouredSteps")

    with pytest.raises(error, match="Environment ColouredSteps"):
        play(policy, envs, 1)


def fake_pygame(*, is_open, driver):
    """Return a stand-in for pygame that has opened a display with a driver, or none."""
    display = SimpleNamespace(get_init=lambda: is_open, get_driver=lambda: driver)
    return SimpleNamespace(display=display)


@pytest.mark.parametrize(
    ("is_open", "driver"), [(True, "x11"), (False, "offscreen")], ids=["x11", "no-display-open"]
)
def test_window_passes_on_resets(is_open, driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", fake_pygame(is_open=is_open, driver=driver))
    env = Windowed(NumberedFrames("human"))

    for _ in range(2):
        _, info = env.reset(seed=4, options={"a": 1})
        assert info == {"seed": 4, "options": {"a": 1}}


def test_window_needs_no_pygame(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    env = Windowed(NumberedFrames("human"))

    for _ in range(2):
        _, info = env.reset(seed=4, options={"a": 1})
        assert info == {"seed": 4, "options": {"a": 1}}


def test_window_that_pygame_draws_nowhere_is_an_error(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setitem(sys.modules, "pygame", fake_pygame(is_open=True, driver="offscreen"))
    env = Windowed(NumberedFrames("human"))

    for _ in range(2):
        with pytest.raises(NotServedError, match="no window opened on the display ':7'") as caught:
            env.reset()
        assert str(caught.value).startswith("--render: ")


def test_error_of_the_first_reset_is_a_rendering_error(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    env = Windowed(NumberedFrames("human", fails=True))

    with pytest.raises(NotServedError, match="cannot be rendered as 'human'") as caught:
        env.reset()

    assert str(caught.value).startswith("Environment NumberedFrames ")
    assert "RuntimeError: no paint" in str(caught.value)


def test_error_of_a_later_reset_stays_as_it_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    numbered_frames = NumberedFrames("human")
    env = Windowed(numbered_frames)
    env.reset()
    numbered_frames.fails = True

    with pytest.raises(RuntimeError, match=r"^no paint$"):
        env.reset()
