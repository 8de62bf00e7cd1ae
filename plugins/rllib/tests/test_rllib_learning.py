"""Long learning runs: each must reach a known return."""

import gymnasium as gym
import numpy as np
import pytest
from remembering import Recall, position_only

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from rlcatalog_rllib import configure, export

pytestmark = pytest.mark.learn


def play(policy, make, episodes=100, explore=False):
    """Return the mean return of fresh episodes, played by the exported policy without Ray."""
    envs = gym.vector.SyncVectorEnv([make] * 20, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    stepper, returns, running = policy.stepper(20), [], np.zeros(20)
    obs, _ = envs.reset(seed=10_000)
    done = reward = None
    share = np.full(20, episodes // 20)
    while share.sum():
        step = stepper.step(obs, done=done, prev_reward=reward, explore=explore)
        obs, reward, terminated, truncated, _ = envs.step(step.action)
        running += reward
        done = terminated | truncated
        for i in np.flatnonzero(done):
            if share[i]:
                share[i] -= 1
                returns.append(running[i])
            running[i] = 0
    print(f"mean return of {episodes} episodes: {np.mean(returns):.3f}")
    return float(np.mean(returns))


@pytest.fixture
def trained(local_ray):
    """Train PPO for some steps and return the exported policy."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    def train(env, model, steps, runners=0, envs=8, **training):
        settings = {"train_batch_size_per_learner": 2048, "minibatch_size": 256, "num_epochs": 8, "lr": 1e-3,
                    "vf_clip_param": 1e9, "vf_loss_coeff": 0.5, "lambda_": 0.95, "grad_clip": 0.5}  # fmt: skip
        config = PPOConfig().debugging(seed=0, log_level="ERROR").reporting(min_time_s_per_iteration=0)
        config.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs)
        config.training(**{**settings, **training, "lr": [[0, training.get("lr", 1e-3)], [steps, 1e-5]]})
        if not isinstance(env, str):
            register_env("learnt", lambda _, make=env: make())
            env = "learnt"
        algo = configure(config, env, model=model).build_algo()
        try:
            while algo.train()["num_env_steps_sampled_lifetime"] < steps:
                pass
            return export(algo)
        finally:
            algo.stop()

    return train


def test_cartpole_with_two_environment_runners(trained):
    policy = trained("CartPole-v1", {"fcnet_hiddens": [64, 64], "vf_share_layers": False}, 120_000, runners=2)
    assert play(policy, lambda: gym.make("CartPole-v1")) >= 475


class BestAllowed(gym.Env):
    """Six values and a mask: the highest value that is allowed pays 1, a forbidden one raises. Ten steps."""

    action_space = gym.spaces.Discrete(6)
    observation_space = gym.spaces.Dict(
        {"action_mask": gym.spaces.MultiBinary(6), "values": gym.spaces.Box(0, 1, (6,), np.float32)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self._look(), {}

    def step(self, action):
        if not self.seen["action_mask"][action]:
            raise AssertionError(f"{action} is forbidden by {self.seen['action_mask']}")
        allowed = np.where(self.seen["action_mask"] == 1, self.seen["values"], -1)
        self.left -= 1
        return self._look(), float(action == allowed.argmax()), self.left == 0, False, {}

    def _look(self):
        mask = (self.np_random.random(6) < 0.5).astype(np.int8)
        mask[self.np_random.integers(6)] = 1
        self.seen = {"action_mask": mask, "values": self.np_random.random(6).astype(np.float32)}
        return self.seen


def test_a_masked_task_without_one_forbidden_action(trained):
    """The environment raises at a forbidden action, in training and in play."""
    policy = trained(BestAllowed, {"fcnet_hiddens": [64, 64]}, 60_000, gamma=0.0)
    assert play(policy, BestAllowed) >= 9.0  # of 10; any allowed action: about 4.6


def test_an_lstm_makes_up_for_velocities(trained):
    model = {"fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 20,
             "observation_filter": "MeanStdFilter"}  # fmt: skip
    # The value reads the memory's output, too: large, its loss would drown what the policy must learn to remember.
    policy = trained(position_only, model, 250_000, envs=16, vf_loss_coeff=0.005, use_kl_loss=False)
    assert play(policy, position_only) >= 300


def test_attention_recalls_what_lies_before_its_sequence(trained):
    """The cue lies more than half a sequence back; guessing pays a fourth."""
    model = {"fcnet_hiddens": [32], "use_attention": True, "attention_dim": 32, "attention_head_dim": 16,
             "attention_num_heads": 2, "attention_memory_inference": 20, "attention_memory_training": 20,
             "max_seq_len": 8}  # fmt: skip
    policy = trained(lambda: Recall(5, 7), model, 60_000, envs=16, gamma=0.9, entropy_coeff=0.01, num_epochs=6,
                     lr=3e-3, train_batch_size_per_learner=1024)  # fmt: skip
    assert play(policy, lambda: Recall(5, 7)) >= 0.9


class Agree(gym.Env):
    """Pays 1 where both parts of the action agree on a value other than the last one, which is not shown. Ten steps.

    Parts drawn apart from one another, with p and q, are paid at most sum p_i q_i (1 - p_i) <= 1/4 a step; together,
    evenly over five values, 4/5.
    """

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(5), gym.spaces.Discrete(5)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.last = 10, None
        return np.zeros(1, np.float32), {}

    def step(self, action):
        one, other = map(int, action)
        paid = float(one == other and one != self.last)
        self.last = one
        self.left -= 1
        return np.zeros(1, np.float32), paid, self.left == 0, False, {}


@pytest.mark.parametrize(("autoregressive", "low", "high"), [(True, 6.0, 10), (False, 0, 3.2)])
def test_two_parts_agree_where_one_depends_on_the_other(trained, autoregressive, low, high):
    model = {"fcnet_hiddens": [32], "use_autoregressive": autoregressive}
    policy = trained(Agree, model, 60_000, gamma=0.0, entropy_coeff=0.05, num_epochs=4)
    assert low <= play(policy, Agree, explore=True) <= high
