"""Long learning runs under RLlib.

The record beside this file says what each must reach.
"""

import gymnasium as gym
import numpy as np
import pytest
from learning import play, random_play
from one_of_env import MoveOrUse
from remembering import Recall

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from rlcatalog_rllib import configure, to_policy

pytestmark = [pytest.mark.learn, pytest.mark.xdist_group("ray")]  # one Ray serves all


@pytest.fixture
def train_ppo(local_ray):
    """Train PPO for some steps and return the exported policy."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    def train(env, model, steps, seed, runners=0, envs=8, **training):
        settings = {
            "train_batch_size_per_learner": 2048,
            "minibatch_size": 256,
            "num_epochs": 8,
            "lr": 1e-3,
            "vf_clip_param": 1e9,
            "vf_loss_coeff": 0.5,
            "lambda_": 0.95,
            "grad_clip": 0.5,
        }
        config = (
            PPOConfig()
            .debugging(seed=seed, log_level="ERROR")
            .reporting(min_time_s_per_iteration=0)
        )
        config.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs)
        config.training(
            **{**settings, **training, "lr": [[0, training.get("lr", 1e-3)], [steps, 1e-5]]}
        )
        if not isinstance(env, str):
            register_env("learnt", lambda _, make=env: make())
            env = "learnt"
        algo = configure(config, env, model=model).build_algo()
        try:
            while algo.train()["num_env_steps_sampled_lifetime"] < steps:
                pass
            return to_policy(algo)
        finally:
            algo.stop()

    return train


def cartpole():
    return gym.make("CartPole-v1")


def test_cartpole_with_two_environment_runners(over_seeds, train_ppo):
    def train_and_play(seed):
        model = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
        policy = train_ppo("CartPole-v1", model, steps=120_000, seed=seed, runners=2)
        return play(policy, cartpole)

    # The median of several seeds must reach the mark in test_rllib_learning.json.
    over_seeds(train_and_play, chance=lambda: random_play(cartpole))


class BestAllowed(gym.Env):
    """Six values and a mask, for ten steps: the highest allowed value pays 1, and a forbidden one
    raises an error.
    """

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


def test_masked_task_is_learned_without_a_forbidden_action(over_seeds, train_ppo):
    """The environment raises an error at a forbidden action, in training and in play; the best
    actions return 10.
    """

    def train_and_play(seed):
        model = {"fcnet_hiddens": [64, 64], "vf_share_layers": True}
        policy = train_ppo(BestAllowed, model, steps=60_000, seed=seed, gamma=0.0)
        return play(policy, BestAllowed)

    # The median of several seeds must reach the mark in test_rllib_learning.json.
    over_seeds(train_and_play, chance=lambda: random_play(BestAllowed))


def test_each_part_of_an_action_is_used_in_its_states(over_seeds, train_ppo):
    """The best actions return 8; an action of the other part of the OneOf pays nothing."""

    def train_and_play(seed):
        model = {"fcnet_hiddens": [32], "vf_share_layers": False}
        training = {"train_batch_size_per_learner": 512, "minibatch_size": 128, "num_epochs": 6}
        policy = train_ppo(
            MoveOrUse, model, steps=20_000, seed=seed, envs=32, gamma=0.5, lr=5e-3, **training
        )
        return play(policy, MoveOrUse)

    # The median of several seeds must reach the mark in test_rllib_learning.json.
    over_seeds(train_and_play, chance=lambda: random_play(MoveOrUse))


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
def test_memory_recalls_steps_before_its_sequence(over_seeds, train_ppo, memory):
    """The answer is a cue, one of four, that was shown more than half a sequence ago; guessing
    returns 0.25.
    """

    def make_env():
        return Recall(5, 7)  # five steps between cue and question, and up to seven before the cue

    def train_and_play(seed):
        model = {
            "fcnet_hiddens": [32],
            "max_seq_len": 8,
            "vf_share_layers": True,
            **MEMORIES[memory],
        }
        policy = train_ppo(
            make_env,
            model,
            steps=60_000,
            seed=seed,
            envs=16,
            gamma=0.9,
            entropy_coeff=0.01,
            num_epochs=6,
            lr=3e-3,
            train_batch_size_per_learner=1024,
        )
        return play(policy, make_env)

    # The median of several seeds must reach the mark in test_rllib_learning.json.
    over_seeds(train_and_play, chance=0.25)


class Agree(gym.Env):
    """Pays 1 if both parts of an action are equal and differ from the last action, which is not
    shown. Ten steps.

    Independent parts, with probabilities p and q, earn at most sum p_i q_i (1 - p_i) <= 1/4 in a
    step; equal parts with the same probability for each of five values earn 4/5.
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


@pytest.mark.parametrize("head", ["autoregressive", "independent"])
def test_two_parts_agree_where_one_depends_on_the_other(over_seeds, train_ppo, head):
    """The environment pays if the two choices of an action agree.

    The record's mark for independent choices is a return that they cannot exceed.
    """

    def train_and_play(seed):
        model = {
            "fcnet_hiddens": [32],
            "vf_share_layers": True,
            "use_autoregressive": head == "autoregressive",
        }
        policy = train_ppo(
            Agree,
            model,
            steps=60_000,
            seed=seed,
            gamma=0.0,
            entropy_coeff=0.05,
            num_epochs=4,
        )
        return play(policy, Agree, explore=True)

    # The median of several seeds must reach the mark in test_rllib_learning.json.
    over_seeds(train_and_play, chance=lambda: random_play(Agree))
