"""Long learning runs: each must reach a known return."""

import gymnasium as gym
import numpy as np
import pytest
import torch
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
    return float(np.mean(algo.evaluate(100, seed=10_000)))


@pytest.mark.parametrize(
    ("seed", "filtered"), [(0, "NoFilter"), (1, "NoFilter"), (2, "NoFilter"), (0, "MeanStdFilter")]
)
def test_learns_cartpole(seed, filtered):
    assert trained("CartPole-v1", {"seed": seed, "observation_filter": filtered}, 100_000) >= 475


@pytest.mark.parametrize("name", ["diag_gaussian", "squashed_gaussian", "beta"])
def test_learns_pendulum(name):
    model = {"fcnet_hiddens": [64, 64], "vf_share_layers": False, "custom_action_dist": name}
    if name == "diag_gaussian":
        model |= {"free_log_std": True, "action_bounds": "affine"}
    config = {"seed": 0, "rollout_length": 256, "gamma": 0.9, "vf_loss_coeff": 0.5}
    assert trained("Pendulum-v1", {**config, "model": model}, 150_000) >= -300


class TwoParts(gym.Env):
    """Pays 1 for the button that is lit and 1 less the distance to where the lever should be."""

    observation_space = gym.spaces.Dict(
        {"lit": gym.spaces.Discrete(4), "lever": gym.spaces.Box(-1, 1, (2,), np.float32)}
    )
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(4), gym.spaces.Box(-1, 1, (2,), np.float32)])
    optimum = 20.0  # ten steps of at most 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self._look(), {}

    def step(self, action):
        button, lever = action
        reward = float(button == self.seen["lit"]) + 1.0 - float(np.abs(lever - self.seen["lever"]).mean())
        self.left -= 1
        return self._look(), reward, self.left == 0, False, {}

    def _look(self):
        lever = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.seen = {"lit": int(self.np_random.integers(4)), "lever": lever}
        return self.seen


def test_learns_a_hybrid_task():
    config = {"seed": 0, "gamma": 0.0, "model": {"fcnet_hiddens": [64, 64]}}
    assert trained(lambda: TwoParts(), config, 150_000) >= 0.9 * TwoParts.optimum


# --- memories --------------------------------------------------------------------------------------------------------

LSTM = {"use_lstm": True, "lstm_cell_size": 64}
ATTENTION = {"use_attention": True, "attention_dim": 32, "attention_head_dim": 16, "attention_num_heads": 2,
             "attention_memory_inference": 20, "attention_memory_training": 20}  # fmt: skip


@both
def test_memories_make_up_for_velocities(framework):
    """CartPole with positions only: each memory three times as good as none, and good in itself."""
    # The value reads the memory's output, too: large, its loss would drown what the policy must learn to remember.
    config = {"framework": framework, "seed": 0, "num_envs": 16, "rollout_length": 128, "num_epochs": 6,
              "gamma": 0.99, "lr": 1e-3, "vf_loss_coeff": 0.005, "observation_filter": "MeanStdFilter"}  # fmt: skip
    steps, net = 150_000, {"fcnet_hiddens": [64]}
    without = trained(position_only, {**config, "model": net}, steps)
    for memory in (LSTM, ATTENTION):
        found = trained(position_only, {**config, "model": {**net, **memory}}, steps)
        assert found >= max(300, 3 * without), (memory, found, without)


@both
def test_memories_recall_across_the_borders_of_sequences(framework):
    """The cue lies more than half a sequence back, for attention also more than a whole one; guessing pays a fourth."""
    config = {"framework": framework, "seed": 0, "num_envs": 16, "rollout_length": 64, "num_epochs": 6, "lr": 3e-3,
              "gamma": 0.9, "entropy_coeff": 0.01}  # fmt: skip
    net = {"fcnet_hiddens": [32], "max_seq_len": 8}
    for memory, gap in ((LSTM, 5), (ATTENTION, 5), (ATTENTION, 12)):
        found = trained(lambda gap=gap: Recall(gap, 7), {**config, "model": {**net, **memory}}, 60_000)
        assert found >= 0.9, (memory, gap, found)
    control = trained(lambda: Recall(5, 7), {**config, "model": net}, 60_000)
    assert control <= 0.4  # 0.25, and the chance of 100 episodes


# --- images ----------------------------------------------------------------------------------------------------------


class Catch(gym.Env):
    """A ball falls down a 10x10 image, a paddle of one pixel must be under it: +1 or -1 at the end.

    The "catch" task (Mnih et al. 2014; bsuite, Osband et al. 2020) on a square image.
    """

    observation_space, action_space = gym.spaces.Box(0, 255, (10, 10, 1), np.uint8), gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.ball, self.paddle = 0, int(self.np_random.integers(10)), int(self.np_random.integers(10))
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
def test_the_vision_net_catches_the_ball(framework):
    """At least 0.95 of the optimum 1; chance is near -0.8."""
    config = {"framework": framework, "seed": 0, "num_envs": 16, "lr": 1e-3, "entropy_coeff": 0.01}
    assert trained(Catch, config, 100_000) >= 0.95
