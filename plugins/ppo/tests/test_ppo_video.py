"""Which episodes are filmed, and `rlcatalog evaluate --video`."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from films import (
    ColouredSteps,
    ListFilm,
    NumberedFrames,
    build_policy,
    frames,
    hide_screen,
    render_with_gymnasium,
)

import rlcatalog
from rlcatalog.errors import MissingExtraError, NotServedError
from rlcatalog_ppo.commands import evaluate
from rlcatalog_ppo.environments import EnvMaker, vector
from rlcatalog_ppo.video import Film, FilmWrapper, make_film_envs
from rlcatalog_runs.evaluation import play


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    """Each test begins without a display, and without what filming sets for SDL."""
    hide_screen(monkeypatch)


# --- evaluate --video -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mp4", pytest.param("GIF", marks=pytest.mark.slow)])
def test_film_shows_the_frames_that_gymnasium_renders(suffix, tmp_path):
    policy = build_policy("CartPole-v1")
    policy.save(tmp_path / "policy")
    path = tmp_path / "films" / f"cartpole.{suffix}"

    evaluate(tmp_path / "policy", env="CartPole-v1", episodes=2, seed=7, video=path)

    images, rate = frames(path)
    expected_images = render_with_gymnasium(policy, episodes=2, seed=7)
    assert rate == 50  # from CartPole's metadata
    assert len(images) == len(expected_images) > 10
    for image, expected in zip(images, expected_images, strict=True):
        assert image.shape == (400, 600, 3)  # the size of CartPole's window
        difference = np.abs(image.astype(int) - expected)
        assert difference.mean() < 3  # of 255, because codecs lose a little


def test_evaluate_prints_the_film_and_the_mean_return(tmp_path, capsys):
    build_policy("CartPole-v1").save(tmp_path / "policy")
    path = tmp_path / "cartpole.mp4"

    evaluate(tmp_path / "policy", env="CartPole-v1", episodes=2, seed=7, video=path)

    images, _ = frames(path)
    *_, line_of_film, line_of_mean, _median, line_of_length, _episodes = (
        capsys.readouterr().out.splitlines()
    )
    assert line_of_film == f"video: {path} (episodes: 2, frames: {len(images)})"
    # CartPole pays 1 a step, and an episode has a frame more than steps.
    mean_return = len(images) / 2 - 1
    assert line_of_mean.startswith(f"mean return  {mean_return:.2f} ± ")
    assert line_of_length == f"mean length  {mean_return:,.1f} steps"


def test_atari_is_filmed_in_its_own_colours(tmp_path):
    # The policy observes the game in grey, at another size.
    config = {"conv_filters": [[4, 8, 8], [8, 4, 4]], "conv_flatten": True}

    def make_env(render_mode):
        options = {"max_episode_steps": 40, "render_mode": render_mode}
        catalog = rlcatalog.default_catalog()
        return EnvMaker("ale_py:ALE/Pong-v5", options, config, catalog)()

    film = Film(tmp_path / "pong.mp4")
    envs = make_film_envs(make_env, "ALE/Pong-v5", film, episodes=1)
    policy = rlcatalog.build(env=envs, config=config, framework="torch")
    play(policy, envs, episodes=1, seed=0)
    envs.close()
    film.write()

    images, _ = frames(film.path)
    last_image = images[-1]
    assert last_image.shape == (210, 160, 3)
    pixel_of_field = last_image[100, 20].astype(int)
    brown = (144, 72, 17)
    assert np.abs(pixel_of_field - brown).max() < 12  # of 255, because codecs lose a little


# --- which episodes are filmed --------------------------------------------------------------------


@pytest.mark.slow
def test_film_does_not_change_the_returns(tmp_path):
    policy = build_policy("CartPole-v1")
    film = Film(tmp_path / "film.mp4")

    def make_env(render_mode):
        return gym.make("CartPole-v1", render_mode=render_mode)

    envs = make_film_envs(make_env, "CartPole-v1", film, episodes=20)
    returns = play(policy, envs, episodes=20, seed=3)
    envs.close()

    assert envs.num_envs == 4  # of 5 episodes each; those of the first one are filmed
    envs_without_film = vector(lambda: gym.make("CartPole-v1"), 4)
    assert returns == play(policy, envs_without_film, episodes=20, seed=3)
    assert film.episodes == 5
    assert film.frames == len(render_with_gymnasium(policy, episodes=5, seed=3))


@pytest.mark.parametrize(("episodes", "filmed_episodes"), [(2, 2), (10, 5)])
def test_film_shows_up_to_five_episodes(episodes, filmed_episodes, tmp_path):
    film = Film(tmp_path / "film.mp4")
    envs = make_film_envs(ColouredSteps, "ColouredSteps", film, episodes)

    play(build_policy("ColouredSteps-v0"), envs, episodes)
    film.write()

    images, rate = frames(film.path)
    assert rate == 12.5  # from the metadata
    # An episode has a frame at its reset, and one for each of three steps.
    steps = [ColouredSteps.read_step(image) for image in images]
    assert steps == [0, 1, 2, 3] * filmed_episodes


@pytest.mark.parametrize("truncates", [False, True], ids=["terminated", "truncated"])
def test_filmed_takes_frames_of_the_first_episodes(truncates):
    film = ListFilm()
    env = FilmWrapper(NumberedFrames("rgb_array", truncates=truncates), film, episodes=2)

    episodes_after_steps = []
    for _ in range(3):  # episodes of two steps
        env.reset()
        for _ in range(2):
            env.step(0)
            episodes_after_steps.append(film.episodes)

    assert episodes_after_steps == [0, 1, 1, 2, 2, 2]
    assert film.taken == [1, 2, 3, 4, 5, 6]  # two resets, and two steps after each


def test_filmed_passes_on_what_the_environment_returns():
    env = FilmWrapper(NumberedFrames("rgb_array"), ListFilm(), episodes=1)

    # `NumberedFrames` returns the arguments of its reset as infos.
    obs, info = env.reset(seed=4, options={"a": 1})
    assert obs.tolist() == [0.0]
    assert info == {"seed": 4, "options": {"a": 1}}

    obs, reward, terminated, truncated, info = env.step(0)
    assert obs.tolist() == [1.0]
    assert (reward, terminated, truncated, info) == (1.0, False, False, {})


@pytest.mark.parametrize(
    ("episodes", "num_envs"),
    # Each environment plays at least as many episodes as are filmed, which are up to five. There
    # are at most 20 environments.
    [(1, 1), (9, 1), (14, 2), (1000, 20)],
)
def test_first_environment_alone_is_filmed(episodes, num_envs):
    render_modes = []

    def make_env(render_mode):
        render_modes.append(render_mode)
        return NumberedFrames(render_mode)

    envs = make_film_envs(make_env, "NumberedFrames", ListFilm(), episodes)

    are_filmed = [isinstance(env.env, FilmWrapper) for env in envs.envs]
    assert are_filmed == [True] + [False] * (num_envs - 1)
    # One more, without a render mode, was made to read its metadata.
    assert sorted(render_modes, key=str) == [None] * num_envs + ["rgb_array"]


# --- render modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"video": Path("film.mp4")},
            "--video: environment ColouredSteps-v0 has no render mode 'rgb_array'.",
        ),
        ({"render": True}, "--render: environment ColouredSteps-v0 has no render mode 'human'."),
    ],
    ids=["video", "render"],
)
def test_evaluate_plays_nothing_without_the_render_mode(options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_policy("ColouredSteps-v0").save(tmp_path / "policy")
    monkeypatch.setattr(ColouredSteps, "metadata", {"render_modes": ["ansi", "svg"]})
    monkeypatch.setattr(ColouredSteps, "resets", 0)

    with pytest.raises(NotServedError) as caught:
        evaluate(tmp_path / "policy", env="ColouredSteps-v0", **options)

    assert str(caught.value) == f"{sentence} It has: 'ansi', 'svg'."
    assert ColouredSteps.resets == 0
    assert not Path("film.mp4").exists()


@pytest.mark.parametrize(
    ("modes", "sentence"),
    [
        ([None, "ansi", "svg"], "It has: 'ansi', 'svg'."),
        ([None], "It has: none."),
        (None, "It has: none."),
    ],
    ids=["other-modes", "mode-none", "no-modes"],
)
def test_error_of_a_missing_render_mode_names_the_others(modes, sentence, monkeypatch):
    monkeypatch.setattr(NumberedFrames, "metadata", {"render_modes": modes})

    with pytest.raises(NotServedError, match="has no render mode 'rgb_array'") as caught:
        make_film_envs(NumberedFrames, "NumberedFrames", ListFilm(), episodes=1)

    assert str(caught.value).endswith(sentence)


def test_environment_without_the_render_mode_is_closed(monkeypatch):
    monkeypatch.setattr(NumberedFrames, "metadata", {"render_modes": ["ansi"]})
    env = NumberedFrames()

    with pytest.raises(NotServedError, match="has no render mode 'rgb_array'"):
        make_film_envs(lambda render_mode: env, "NumberedFrames", ListFilm(), episodes=1)

    assert env.closed == 1


class FailingRender(gym.Wrapper):
    """Raises an error when it renders."""

    def __init__(self, env, error):
        super().__init__(env)
        self.error = error

    def render(self):
        raise self.error


def test_rendering_error_names_the_environment_id():
    env = FailingRender(gym.make("CartPole-v1", render_mode="rgb_array"), RuntimeError("no paint"))

    with pytest.raises(NotServedError, match="Environment CartPole-v1 cannot") as caught:
        FilmWrapper(env, ListFilm(), episodes=1).reset()

    assert str(caught.value).endswith(" be rendered as 'rgb_array': RuntimeError: no paint")


def test_rendering_error_names_the_class_without_an_id():
    env = FailingRender(NumberedFrames("rgb_array"), RuntimeError("no paint"))

    with pytest.raises(NotServedError, match="NumberedFrames cannot be rendered"):
        FilmWrapper(env, ListFilm(), episodes=1).reset()


def test_rendering_without_its_package_names_the_package():
    error = gym.error.DependencyNotInstalled("paint is not installed")
    env = FailingRender(NumberedFrames("rgb_array"), error)

    with pytest.raises(MissingExtraError, match="is not installed: paint is not installed"):
        FilmWrapper(env, ListFilm(), episodes=1).reset()


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
def test_film_rate_is_read_from_the_metadata(fps, expected, monkeypatch):
    metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
    monkeypatch.setattr(NumberedFrames, "metadata", metadata)
    film = ListFilm()

    make_film_envs(NumberedFrames, "NumberedFrames", film, episodes=1)

    assert film.fps == expected
