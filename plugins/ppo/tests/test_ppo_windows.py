"""Windows that show a policy: displays, render modes, errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
from films import ListFilm, NumberedFrames, build_policy, hide_screen, render_with_gymnasium

from rlcatalog.errors import NotServedError
from rlcatalog_ppo import video
from rlcatalog_ppo.commands import evaluate
from rlcatalog_ppo.video import WindowWrapper, make_film_envs, make_window_env


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    """Each test begins without a display, and without what filming sets for SDL."""
    hide_screen(monkeypatch)


def test_filming_tells_sdl_to_use_no_screen_and_no_sound():
    make_film_envs(NumberedFrames, "NumberedFrames", ListFilm(), episodes=1)

    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ["SDL_AUDIODRIVER"] == "dummy"


def test_filming_keeps_an_sdl_driver_from_the_user(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")

    make_film_envs(NumberedFrames, "NumberedFrames", ListFilm(), episodes=1)

    assert os.environ["SDL_VIDEODRIVER"] == "x11"


@pytest.mark.slow
def test_window_shows_one_environment(tmp_path, monkeypatch, capsys):
    import pygame

    policy = build_policy("CartPole-v1")
    policy.save(tmp_path)
    # SDL draws, but not on a screen.
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    drawn_sizes = []
    flip = pygame.display.flip  # shows what was drawn

    def record_and_flip():
        drawn_sizes.append(pygame.display.get_surface().get_size())
        flip()

    with monkeypatch.context() as patch:
        patch.setattr(pygame.display, "flip", record_and_flip)
        evaluate(tmp_path, env="CartPole-v1", episodes=2, seed=7, render=True)

    assert set(drawn_sizes) == {(600, 400)}
    # The environment is reset after the last episode too, and Gymnasium's CartPole draws resets.
    images = render_with_gymnasium(policy, episodes=2, seed=7)
    assert len(drawn_sizes) == len(images) + 1
    assert "mean return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("platform", "variable"),
    [
        ("linux", "DISPLAY"),
        ("linux", "WAYLAND_DISPLAY"),
        ("linux", "SDL_VIDEODRIVER"),
        ("darwin", None),  # macOS needs no variable
    ],
)
def test_window_opens_with_a_display(platform, variable, monkeypatch):
    monkeypatch.setattr(video.sys, "platform", platform)
    if variable is not None:
        monkeypatch.setenv(variable, "here")

    [env] = make_window_env(NumberedFrames, "NumberedFrames").envs

    assert isinstance(env.env, WindowWrapper)
    assert env.unwrapped.render_mode == "human"


def test_window_shows_frames_of_environment_without_windows(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(NumberedFrames, "metadata", {"render_modes": ["rgb_array"]})

    [env] = make_window_env(NumberedFrames, "NumberedFrames").envs

    assert env.unwrapped.render_mode == "human"  # which Gymnasium adds to an environment


def test_window_needs_a_display_on_linux(tmp_path, monkeypatch):
    build_policy("CartPole-v1").save(tmp_path)
    monkeypatch.setattr(video.sys, "platform", "linux")

    with pytest.raises(NotServedError, match="there is no display for a window"):
        evaluate(tmp_path, env="CartPole-v1", render=True)

    # An accelerated window would load a second LLVM beside TensorFlow's and end the process.
    assert os.environ["SDL_FRAMEBUFFER_ACCELERATION"] == "0"


def has_loaded_llvm():
    """Return whether the process has loaded the LLVM that Mesa draws with."""
    return "libLLVM" in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="windows are opened without X elsewhere"
)
def test_window_on_a_missing_display_is_an_error(tmp_path, monkeypatch):
    import pygame

    build_policy("CartPole-v1").save(tmp_path)
    pygame.quit()
    had_loaded_llvm = has_loaded_llvm()
    monkeypatch.setenv("DISPLAY", ":4711")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")

    # SDL itself would draw nowhere, without an error.
    with pytest.raises(NotServedError, match="no window opened on the display ':4711'"):
        evaluate(tmp_path, env="CartPole-v1", episodes=1, render=True)

    pygame.quit()
    # An accelerated window loads a second LLVM beside TensorFlow's, which can end the process.
    assert has_loaded_llvm() == had_loaded_llvm


def fake_pygame(*, is_open, driver):
    """Return a stand-in for pygame that has opened a display with a driver, or none."""
    display = SimpleNamespace(get_init=lambda: is_open, get_driver=lambda: driver)
    return SimpleNamespace(display=display)


@pytest.mark.parametrize(
    ("is_open", "driver"), [(True, "x11"), (False, "offscreen")], ids=["x11", "no-display-open"]
)
def test_window_passes_on_resets(is_open, driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", fake_pygame(is_open=is_open, driver=driver))
    env = WindowWrapper(NumberedFrames("human"))

    # Its infos have the arguments of the reset.
    _, first_info = env.reset(seed=4, options={"a": 1})
    _, second_info = env.reset(seed=5)

    assert first_info == {"seed": 4, "options": {"a": 1}}
    assert second_info == {"seed": 5, "options": None}


def test_window_needs_no_pygame(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    env = WindowWrapper(NumberedFrames("human"))

    _, info = env.reset(seed=4)

    assert info == {"seed": 4, "options": None}


def test_window_that_pygame_draws_nowhere_is_an_error(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setitem(sys.modules, "pygame", fake_pygame(is_open=True, driver="offscreen"))
    env = WindowWrapper(NumberedFrames("human"))

    message = "--render: no window opened on the display ':7'"
    with pytest.raises(NotServedError, match=message):
        env.reset()
    with pytest.raises(NotServedError, match=message):
        env.reset()


class FailingReset(gym.Wrapper):
    """Raises an error in each reset, if one is set."""

    error = None

    def reset(self, **arguments):
        if self.error is not None:
            raise self.error
        return self.env.reset(**arguments)


def test_error_of_the_first_reset_is_a_rendering_error(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    env = FailingReset(NumberedFrames("human"))
    env.error = RuntimeError("no paint")

    with pytest.raises(NotServedError, match="cannot be rendered as 'human'") as caught:
        WindowWrapper(env).reset()

    assert str(caught.value).startswith("Environment NumberedFrames ")
    assert "RuntimeError: no paint" in str(caught.value)


def test_error_of_a_later_reset_stays_as_it_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "pygame", raising=False)
    failing = FailingReset(NumberedFrames("human"))
    env = WindowWrapper(failing)
    env.reset()
    failing.error = RuntimeError("no paint")

    with pytest.raises(RuntimeError, match=r"^no paint$"):
        env.reset()
