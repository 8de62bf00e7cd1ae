"""Long learning runs; what each must reach stands in the record beside this file."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from learning import random_play
from remembering import Recall, position_only

from rlcatalog_ppo import PPO

pytestmark = pytest.mark.learn
both = pytest.mark.parametrize("framework", ["torch", "tf"])


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks are fastest with one thread, and several runs share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(env, config, steps):
    """Train for some steps and return the mean return of 100 fresh episodes."""
    algo = PPO(env, {"total_steps": steps, **config})
    while algo.train()["timesteps_total"] < steps:
        pass
    found = float(np.mean(algo.evaluate(100, seed=10_000)))
    algo.stop()
    return found


def cartpole():
    return gym.make("CartPole-v1")


@pytest.mark.parametrize("filtered", ["NoFilter", "MeanStdFilter"])
def test_learns_cartpole(over_seeds, filtered):
    def train(seed):
        return trained(cartpole, {"seed": seed, "observation_filter": filtered}, 70_000)

    over_seeds(train, chance=lambda: random_play(cartpole))


@pytest.mark.parametrize("name", ["diag_gaussian", "squashed_gaussian", "beta"])
def test_learns_pendulum(over_seeds, name):
    model = {"fcnet_hiddens": [64, 64], "vf_share_layers": False, "custom_action_dist": name}
    if name == "diag_gaussian":
        model |= {"free_log_std": True, "action_bounds": "affine"}

    def train(seed):
        config = {"seed": seed, "rollout_length": 256, "gamma": 0.9, "vf_loss_coeff": 0.5}
        return trained("Pendulum-v1", {**config, "model": model}, 150_000)

    over_seeds(train, chance=lambda: random_play(lambda: gym.make("Pendulum-v1")))


class TwoParts(gym.Env):
    """Pays 1 for the button that is lit and 1 less the distance to where the lever should be."""

    observation_space = gym.spaces.Dict(
        {"lit": gym.spaces.Discrete(4), "lever": gym.spaces.Box(-1, 1, (2,), np.float32)}
    )
    action_space = gym.spaces.Tuple(
        [gym.spaces.Discrete(4), gym.spaces.Box(-1, 1, (2,), np.float32)]
    )
    optimum = 20.0  # ten steps of at most 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self._look(), {}

    def step(self, action):
        button, lever = action
        reward = (
            float(button == self.seen["lit"])
            + 1.0
            - float(np.abs(lever - self.seen["lever"]).mean())
        )
        self.left -= 1
        return self._look(), reward, self.left == 0, False, {}

    def _look(self):
        lever = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.seen = {"lit": int(self.np_random.integers(4)), "lever": lever}
        return self.seen


def test_learns_a_hybrid_task(over_seeds):
    def train(seed):
        config = {"seed": seed, "gamma": 0.0, "model": {"fcnet_hiddens": [64, 64]}}
        return trained(lambda: TwoParts(), config, 60_000)

    over_seeds(train, chance=lambda: random_play(TwoParts))


# --- memories -------------------------------------------------------------------------------------

MEMORIES = {
    "no memory": {},
    "lstm": {"use_lstm": True, "lstm_cell_size": 64},
    "attention": {
        "use_attention": True,
        "attention_dim": 32,
        "attention_head_dim": 16,
        "attention_num_heads": 2,
        "attention_memory_inference": 20,
        "attention_memory_training": 20,
    },
}


@pytest.mark.parametrize("memory", ["lstm", "attention"])
def test_a_memory_makes_up_for_velocities(over_seeds, memory):
    """CartPole with positions only; `chance` is what a net without memory learned there."""

    # The value reads the memory's output, too: large, its loss would drown what the policy must
    # learn to remember.
    def train(seed, memory=memory):
        config = {
            "framework": "torch",
            "seed": seed,
            "num_envs": 16,
            "rollout_length": 128,
            "num_epochs": 6,
            "gamma": 0.99,
            "lr": 1e-3,
            "vf_loss_coeff": 0.005,
            "observation_filter": "MeanStdFilter",
            "model": {"fcnet_hiddens": [64], **MEMORIES[memory]},
        }
        return trained(position_only, config, 150_000)

    over_seeds(train, chance=lambda: train(0, "no memory"))


@both
@pytest.mark.parametrize(("memory", "gap"), [("lstm", 5), ("attention", 12)])
def test_a_memory_recalls_across_the_borders_of_sequences(over_seeds, memory, gap, framework):
    """The cue lies more than half a sequence back, for attention more than a whole one; guessing
    pays a fourth.
    """

    def train(seed):
        config = {
            "framework": framework,
            "seed": seed,
            "num_envs": 16,
            "rollout_length": 64,
            "num_epochs": 6,
            "lr": 3e-3,
            "gamma": 0.9,
            "entropy_coeff": 0.01,
            "model": {"fcnet_hiddens": [32], "max_seq_len": 8, **MEMORIES[memory]},
        }
        return trained(lambda: Recall(gap, 7), config, 60_000)

    over_seeds(train, chance=0.25)


# --- images ---------------------------------------------------------------------------------------


class Catch(gym.Env):
    """A ball falls down a 10x10 image, a paddle of one pixel must be under it: +1 or -1 at the end.

    The "catch" task (Mnih et al. 2014; bsuite, Osband et al. 2020) on a square image.
    """

    observation_space, action_space = (
        gym.spaces.Box(0, 255, (10, 10, 1), np.uint8),
        gym.spaces.Discrete(3),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.ball, self.paddle = (
            0,
            int(self.np_random.integers(10)),
            int(self.np_random.integers(10)),
        )
        return self._image(), {}

    def step(self, action):
        self.paddle = min(max(self.paddle + int(action) - 1, 0), 9)
        self.row += 1
        over = self.row == 9
        return self._image(), float(over and 1 - 2 * (self.ball != self.paddle)), over, False, {}

    def _image(self):
        image = np.zeros((10, 10, 1), np.uint8)
        image[self.row, self.ball], image[9, self.paddle] = 255, 255
        return image


@both
def test_the_vision_net_catches_the_ball(over_seeds, framework):
    """The optimum pays 1."""

    def train(seed):
        config = {
            "framework": framework,
            "seed": seed,
            "num_envs": 16,
            "lr": 1e-3,
            "entropy_coeff": 0.01,
        }
        return trained(Catch, config, 100_000)

    over_seeds(train, chance=lambda: random_play(Catch))
