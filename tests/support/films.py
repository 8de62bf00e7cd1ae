"""What tests of films share: environments that render, and the frames of a file."""

from __future__ import annotations

import av
import gymnasium as gym
import numpy as np

import rlcatalog
from rlcatalog_runs.seeds import SeedStream, derive_seed


def hide_screen(monkeypatch):
    """Hide the display and what filming tells SDL; what a test sets is taken back."""
    sdl = (f"SDL_{name}" for name in ("VIDEODRIVER", "AUDIODRIVER", "FRAMEBUFFER_ACCELERATION"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", *sdl):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def frames(path):
    """Return a film's frames, `uint8 [H, W, 3]` each, and its frames per second."""
    with av.open(str(path)) as file:
        return [
            frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)
        ], file.streams.video[0].average_rate


class ColouredSteps(gym.Env):
    """Episodes of 3 steps, each with a colour; `read_step` returns the step that a frame shows."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 12.5}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2)
    resets = 0

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        ColouredSteps.resets += 1
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t == 3, False, {}

    def render(self):
        return np.full((21, 31, 3), (40 * self.t, 250, 10), np.uint8)

    @staticmethod
    def read_step(image):
        mean_red = float(image[:21, :31, 0].mean())  # without padding
        return round(mean_red / 40)


gym.register("ColouredSteps-v0", ColouredSteps, disable_env_checker=True)


class NumberedFrames(gym.Env):
    """Episodes of 2 steps; each frame is the number of frames so far."""

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None, *, truncates=False):
        self.render_mode = render_mode
        self.truncates = truncates
        self.frames = 0
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
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


def build_policy(env_id):
    """Return a policy with random weights for an environment."""
    return rlcatalog.build(env=gym.make(env_id), config={"fcnet_hiddens": [8]}, framework="torch")


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
