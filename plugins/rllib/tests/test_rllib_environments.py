"""Environments as people have them, under RLlib, which makes them in its runners."""

import functools
import pickle

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import cloudpickle
from agents_env import TwoCartPoles
from gymnasium.vector import SyncVectorEnv
from ray.rllib.algorithms.ppo import PPOConfig

from rlcatalog.errors import ConfigError
from rlcatalog_rllib import configure
from rlcatalog_rllib.envs import CatalogEnv, create_env

#: Widths of the observation.
SIZES = (3, 5)


class Sized(gym.Env):
    """Takes no config: its one parameter has a default that is none."""

    def __init__(self, size=SIZES[0]):
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.1), False, {}


class Bare(Sized):
    """Takes nothing."""

    def __init__(self):
        super().__init__(SIZES[1])


class Configured(Sized):
    """Takes a config, as Ray's environments do; its places show which copy it is."""

    def __init__(self, config=None):
        self.config = config
        super().__init__((config or {}).get("size", SIZES[0]))


@pytest.mark.parametrize(
    ("env", "env_config", "size", "by_ray"),
    [
        (Configured, {}, 3, True),
        (Configured, {"size": 5}, 5, True),
        (Sized, {}, 3, False),
        (Sized, {"size": 5}, 5, False),
        (Bare, {}, 5, False),
        (lambda: Sized(5), {}, 5, False),
        (lambda config: Configured(config), {"size": 5}, 5, False),
        (functools.partial(Sized, 5), {}, 5, False),
    ],
)
def test_classes_and_functions_are_made_in_the_runners(env, env_config, size, by_ray, bench):
    config = PPOConfig().env_runners(
        num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=8
    )
    config = configure(config, env, model={"fcnet_hiddens": [4]}, env_config=env_config)
    assert (config.env is env) == by_ray
    assert (config.env is CatalogEnv) != by_ray
    config = pickle.loads(cloudpickle.dumps(config))  # as Ray sends it to other processes
    runner = bench.runner(config)
    episodes = runner.sample(num_timesteps=8, random_actions=False)
    assert sum(len(episode) for episode in episodes) >= 8
    assert runner.get_spaces()["__env__"][0].shape[-1] == size
    runner.stop()


def test_a_run_trains_in_what_a_function_makes(local_ray):
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=32)
    config.training(train_batch_size_per_learner=32, minibatch_size=32, num_epochs=1).debugging(
        log_level="ERROR"
    )
    algo = configure(config, lambda: Sized(5), model={"fcnet_hiddens": [4]}).build_algo()
    try:
        assert algo.train()["num_env_steps_sampled_lifetime"] == 32
    finally:
        algo.stop()


def test_a_config_says_which_copy_it_is():
    context = create_env(Configured, {"size": 5}).config
    assert (context.worker_index, context["size"]) == (0, 5)
    assert (
        create_env(Configured, {}, context.copy_with_overrides(worker_index=2)).config.worker_index
        == 2
    )


def test_an_instance_is_refused():
    """Each of Ray's runners makes its own, the local one as well."""
    for env, what, source in (
        (Sized(), r"one environment \(Sized\)", "Sized"),
        (gym.make("CartPole-v1"), r"one environment \(CartPoleEnv\)", "'CartPole-v1'"),
        (TwoCartPoles(), r"one environment \(TwoCartPoles\)", "TwoCartPoles"),
        (SyncVectorEnv([Sized] * 2), r"a vector environment of 2 \(SyncVectorEnv\)", "MyEnv"),
    ):
        for config in (PPOConfig(), PPOConfig().env_runners(num_env_runners=0)):
            with pytest.raises(
                ConfigError, match=rf"expected an id.*; found {what}\..*: env={source}\. Set"
            ):
                configure(config, env)


def test_several_agents_need_a_class():
    config = PPOConfig().multi_agent(policies={"all"}, policy_mapping_fn=lambda *_, **__: "all")
    with pytest.raises(
        ConfigError, match="expected an environment class whose first argument is its config, found"
    ):
        configure(config, lambda: TwoCartPoles())
