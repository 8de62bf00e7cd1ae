"""Long learning runs of PPO; the record beside this file says what each must reach."""

import gymnasium as gym
import numpy as np
import pytest
from learning import random_play
from remembering import Recall, position_only

from rlcatalog_ppo import PPO

# Several runs share the machine.
pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def train_ppo(env, *, steps, **config):
    """Train for some steps and return the mean return of 100 new episodes."""
    algo = PPO(env, {"total_steps": steps, **config})
    while algo.train()["timesteps_total"] < steps:
        pass
    mean_return = float(np.mean(algo.evaluate(100, seed=10_000)))
    algo.stop()
    return mean_return


def cartpole():
    return gym.make("CartPole-v1")


def pendulum():
    return gym.make("Pendulum-v1")


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_ppo_learns_cartpole(over_seeds, observation_filter):
    def train(seed):
        return train_ppo(cartpole, steps=70_000, seed=seed, observation_filter=observation_filter)

    over_seeds(train, chance=lambda: random_play(cartpole))


@pytest.mark.parametrize("action_dist", ["diag_gaussian", "squashed_gaussian", "beta"])
def test_ppo_learns_pendulum(over_seeds, action_dist):
    model = {
        "fcnet_hiddens": [64, 64],
        "vf_share_layers": False,
        "custom_action_dist": action_dist,
    }
    if action_dist == "diag_gaussian":  # the others are bounded themselves
        model = {**model, "free_log_std": True, "action_bounds": "affine"}

    def train(seed):
        return train_ppo(
            "Pendulum-v1",
            steps=150_000,
            seed=seed,
            rollout_length=256,
            gamma=0.9,
            vf_loss_coeff=0.5,
            model=model,
        )

    over_seeds(train, chance=lambda: random_play(pendulum))


class ButtonAndLever(gym.Env):
    """Pays 1 for the button that is lit, and 1 less the distance to where the lever should be."""

    observation_space = gym.spaces.Dict(
        {"lit": gym.spaces.Discrete(4), "lever": gym.spaces.Box(-1, 1, (2,), np.float32)}
    )
    action_space = gym.spaces.Tuple(
        [gym.spaces.Discrete(4), gym.spaces.Box(-1, 1, (2,), np.float32)]
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps_left = 10
        return self._draw_obs(), {}

    def step(self, action):
        button, lever = action
        is_lit = float(button == self.obs["lit"])
        distance = float(np.abs(lever - self.obs["lever"]).mean())
        self.steps_left -= 1
        return self._draw_obs(), is_lit + 1.0 - distance, self.steps_left == 0, False, {}

    def _draw_obs(self):
        lever = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        lit = int(self.np_random.integers(4))
        self.obs = {"lit": lit, "lever": lever}
        return self.obs


def test_ppo_learns_hybrid_actions(over_seeds):
    # At most 2 in each of ten steps: the optimum is 20.
    def train(seed):
        model = {"fcnet_hiddens": [64, 64]}
        return train_ppo(ButtonAndLever, steps=60_000, seed=seed, gamma=0.0, model=model)

    over_seeds(train, chance=lambda: random_play(ButtonAndLever))


# --- memories -------------------------------------------------------------------------------------

WITHOUT_MEMORY = {}
MEMORIES = {
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
def test_memory_makes_up_for_missing_velocities(over_seeds, memory):
    # CartPole without velocities, which a memory can derive from successive positions.
    def train(seed, memory_config):
        return train_ppo(
            position_only,
            steps=150_000,
            framework="torch",
            seed=seed,
            num_envs=16,
            rollout_length=128,
            num_epochs=6,
            gamma=0.99,
            lr=1e-3,
            # The value reads the memory's output, too. With a large weight, its loss would hide
            # what the policy must learn to remember.
            vf_loss_coeff=0.005,
            observation_filter="MeanStdFilter",
            model={"fcnet_hiddens": [64], **memory_config},
        )

    # The returns must be far above those of a net without memory.
    over_seeds(lambda seed: train(seed, MEMORIES[memory]), chance=lambda: train(0, WITHOUT_MEMORY))


@both_frameworks
@pytest.mark.parametrize(("memory", "gap"), [("lstm", 5), ("attention", 12)])
def test_memory_recalls_cue_across_sequences(over_seeds, memory, gap, framework):
    # A cue must be remembered for `gap` steps. With sequences of 8 steps, a gap of 5 is more than
    # half a sequence, and 12 more than a whole one.
    def train(seed):
        return train_ppo(
            # The cue comes after up to 7 steps.
            lambda: Recall(gap, 7),
            steps=60_000,
            framework=framework,
            seed=seed,
            num_envs=16,
            rollout_length=64,
            num_epochs=6,
            lr=3e-3,
            gamma=0.9,
            entropy_coeff=0.01,
            model={"fcnet_hiddens": [32], "max_seq_len": 8, **MEMORIES[memory]},
        )

    # There are four cues, so guessing pays a quarter.
    over_seeds(train, chance=0.25)


# --- images ---------------------------------------------------------------------------------------


class Catch(gym.Env):
    """A ball falls down a 10x10 image, a paddle of one pixel must be under it: +1 or -1 at the end.

    The "catch" task (Mnih et al. 2014; bsuite, Osband et al. 2020) on a square image.
    """

    observation_space = gym.spaces.Box(0, 255, (10, 10, 1), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = 0
        self.ball = int(self.np_random.integers(10))
        self.paddle = int(self.np_random.integers(10))
        return self._draw_image(), {}

    def step(self, action):
        move = int(action) - 1
        self.paddle = min(max(self.paddle + move, 0), 9)
        self.row += 1
        is_over = self.row == 9
        reward = 0.0
        if is_over:
            reward = 1.0 if self.ball == self.paddle else -1.0
        return self._draw_image(), reward, is_over, False, {}

    def _draw_image(self):
        image = np.zeros((10, 10, 1), np.uint8)
        image[self.row, self.ball] = 255
        image[9, self.paddle] = 255
        return image


@both_frameworks
def test_vision_net_learns_to_catch_ball(over_seeds, framework):
    # The optimum is 1.
    def train(seed):
        return train_ppo(
            Catch,
            steps=100_000,
            framework=framework,
            seed=seed,
            num_envs=16,
            lr=1e-3,
            entropy_coeff=0.01,
        )

    over_seeds(train, chance=lambda: random_play(Catch))
