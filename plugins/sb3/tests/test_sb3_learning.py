"""Long learning runs under Stable-Baselines3: each must reach a known return."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import rlcatalog
from rlcatalog_sb3 import export, for_sb3
from rlcatalog_sb3.algorithms import make

pytestmark = pytest.mark.learn


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks are fastest with one thread, and several runs share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def envs(env, n, seed):
    return make_vec_env(lambda: for_sb3(env if isinstance(env, str) else env()), n_envs=n, seed=seed)


def mean_return(algorithm, env, episodes=100):
    """Return the mean of fresh episodes, as Stable-Baselines3 counts it."""
    return evaluate_policy(algorithm, envs(env, 20, 10_000), episodes)[0]


def exported_return(algorithm, env, folder, episodes):
    """Return the mean of fresh episodes played by the exported policy, without Stable-Baselines3's loop."""
    export(algorithm).save(folder)
    policy, returns = rlcatalog.load(folder), []
    for episode in range(episodes):
        one, total, over = policy.wrap_env(gym.make(env) if isinstance(env, str) else env()), 0.0, False
        obs, _ = one.reset(seed=10_000 + episode)
        stepper = policy.stepper(1)
        while not over:
            action = stepper.step([obs], explore=False).action
            obs, reward, terminated, truncated, _ = one.step(action[0])
            total, over = total + reward, terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


NET = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}


def test_ppo_learns_cartpole(tmp_path):
    algorithm = make("PPO", envs("CartPole-v1", 8, 0), NET, n_steps=128, batch_size=256, n_epochs=10, seed=0,
                     learning_rate=lambda left: 1e-3 * left, device="cpu")  # fmt: skip
    algorithm.learn(100_000)
    assert mean_return(algorithm, "CartPole-v1") >= 475
    assert exported_return(algorithm, "CartPole-v1", tmp_path, 10) >= 475


def test_a2c_learns_cartpole(tmp_path):
    algorithm = make("A2C", envs("CartPole-v1", 8, 0), NET, n_steps=32, gae_lambda=0.95, seed=0,
                     learning_rate=lambda left: 3e-3 * left, normalize_advantage=True, use_rms_prop=False,
                     device="cpu")  # fmt: skip
    algorithm.learn(300_000)
    assert mean_return(algorithm, "CartPole-v1") >= 475
    assert exported_return(algorithm, "CartPole-v1", tmp_path, 10) >= 475


def test_sac_learns_pendulum_over_our_features(tmp_path):
    algorithm = make("SAC", envs("Pendulum-v1", 1, 0), {"fcnet_hiddens": [64], "fcnet_activation": "relu"}, seed=0,
                     learning_rate=1e-3, policy_kwargs={"net_arch": [64]}, device="cpu")  # fmt: skip
    algorithm.learn(10_000)
    assert mean_return(algorithm, "Pendulum-v1") >= -250
    assert exported_return(algorithm, "Pendulum-v1", tmp_path, 20) >= -250


class Locks(gym.Env):
    """Of eight doors three are open, and the brightest of those pays; a closed one is never to be tried."""

    observation_space = gym.spaces.Dict(
        {"light": gym.spaces.Box(0, 1, (8,), np.float32), "action_mask": gym.spaces.Box(0, 1, (8,), np.int8)}
    )
    action_space = gym.spaces.Discrete(8)
    forbidden = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self._look(), {}

    def step(self, action):
        Locks.forbidden += not self.open[action]
        reward = float(action == np.where(self.open, self.light, -1).argmax())
        self.left -= 1
        return self._look(), reward, self.left == 0, False, {}

    def _look(self):
        self.light = self.np_random.random(8, np.float32)
        self.open = np.zeros(8, np.int8)
        self.open[self.np_random.choice(8, 3, replace=False)] = 1
        return {"light": self.light, "action_mask": self.open}


def test_maskable_ppo_learns_a_masked_task_without_a_forbidden_action(tmp_path):
    """The best door pays 20 of 20; any open one 6.7."""
    from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked

    Locks.forbidden = 0
    algorithm = make("MaskablePPO", envs(Locks, 8, 0), {"fcnet_hiddens": [64, 64]}, n_steps=128, batch_size=256, seed=0,
                     learning_rate=1e-3, gamma=0.0, device="cpu")  # fmt: skip
    algorithm.learn(60_000)
    assert evaluate_masked(algorithm, envs(Locks, 20, 10_000), 100)[0] >= 17
    assert exported_return(algorithm, Locks, tmp_path, 20) >= 17
    assert Locks.forbidden == 0


class Positions(gym.ObservationWrapper):
    """CartPole without velocities, in units of its limits."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))

    def observation(self, observation):
        return observation[[0, 2]] / np.array([2.4, 0.21], np.float32)


def test_recurrent_ppo_makes_up_for_velocities_with_our_lstm(tmp_path):
    config = {"fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64}
    algorithm = make("RecurrentPPO", envs(Positions, 8, 0), config, n_steps=32, batch_size=256, n_epochs=20, seed=0,
                     gae_lambda=0.8, gamma=0.98, learning_rate=lambda left: 1e-3 * left, vf_coef=0.01, device="cpu",
                     clip_range=lambda left: 0.2 * left)  # fmt: skip
    algorithm.learn(100_000)
    assert mean_return(algorithm, Positions) >= 300
    assert exported_return(algorithm, Positions, tmp_path, 10) >= 300
