"""Two agents that learn side by side under RLlib.

The record beside this file says what they must reach.
"""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from learning import play, random_play

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rlcatalog_rllib import configure, to_policy

pytestmark = [
    pytest.mark.learn,
    pytest.mark.xdist_group("ray"),  # one Ray serves all
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-multi-agent-env-v0"),
]


def cartpole():
    return gym.make("CartPole-v1")


def positions_only():
    return gym.wrappers.TransformObservation(
        cartpole(), lambda obs: obs[[0, 2]], gym.spaces.Box(-10, 10, (2,), np.float32)
    )


class SideBySide(MultiAgentEnv):
    """Two CartPoles for 500 steps, of which one shows no velocities; if a pole falls, a new agent
    begins an episode there.
    """

    MAKE: ClassVar = {"sees": cartpole, "recalls": positions_only}

    def __init__(self, config=None):
        super().__init__()
        self.envs = {name: make() for name, make in self.MAKE.items()}
        self.possible_agents = [f"{name}-{i}" for name in self.envs for i in range(64)]
        of = {agent: self.envs[agent.split("-")[0]] for agent in self.possible_agents}
        self.observation_spaces = {agent: env.observation_space for agent, env in of.items()}
        self.action_spaces = {agent: env.action_space for agent, env in of.items()}

    def reset(self, *, seed=None, options=None):
        self.left, self.counts, self.agents = (
            500,
            dict.fromkeys(self.envs, 0),
            [f"{name}-0" for name in self.envs],
        )
        seeds = [None if seed is None else seed + i for i in range(2)]
        started = zip(self.envs.values(), seeds, strict=True)
        return {
            agent: env.reset(seed=s)[0]
            for agent, (env, s) in zip(self.agents, started, strict=True)
        }, {}

    def step(self, actions):
        seen, paid, ended, cut = {}, {}, {}, {}
        self.left -= 1
        for agent, action in actions.items():
            name, over = agent.split("-")[0], not self.left
            seen[agent], paid[agent], ended[agent], truncated, _ = self.envs[name].step(action)
            cut[agent] = (truncated or over) and not ended[agent]
            if ended[agent] or cut[agent]:
                self.agents.remove(agent)
                if not over:
                    self.counts[name] += 1
                    self.agents.append(f"{name}-{self.counts[name]}")
                    seen[self.agents[-1]] = self.envs[name].reset()[0]
        return seen, paid, {**ended, "__all__": False}, {**cut, "__all__": not self.left}, {}


def train(seed):
    """Train a policy for each kind of agent, and return a dict of the two policies."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    steps = 200_000
    config = (
        PPOConfig().debugging(seed=seed, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    )
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    config.training(
        train_batch_size_per_learner=2048,
        minibatch_size=256,
        num_epochs=8,
        lr=[[0, 3e-3], [steps, 1e-5]],
        gamma=0.98,
        lambda_=0.95,
        vf_clip_param=1e9,
        vf_loss_coeff=0.05,
        grad_clip=0.5,
    )
    lstm = {
        "fcnet_hiddens": [64],
        "use_lstm": True,
        "lstm_cell_size": 64,
        "max_seq_len": 20,
        "vf_share_layers": True,
        "observation_filter": "MeanStdFilter",
    }
    models = {"sees": {"fcnet_hiddens": [64, 64]}, "recalls": lstm}
    config.multi_agent(
        policies=set(models), policy_mapping_fn=lambda agent, *_, **__: agent.split("-")[0]
    )
    register_env("side by side", lambda _: SideBySide())
    algo = configure(config, "side by side", models=models).build_algo()
    try:
        while algo.train()["num_env_steps_sampled_lifetime"] < steps:
            pass
        return {name: to_policy(algo, name) for name in models}
    finally:
        algo.stop()


def fraction_of_goals(returns):
    """Return the lower of two fractions: of a return of 450 for the agent that sees everything, and
    of 300 for the LSTM that sees only positions.
    """
    return min(returns["sees"] / 450, returns["recalls"] / 300)


def test_agents_with_and_without_memory_learn_together(over_seeds, local_ray):
    # One agent sees positions and velocities; the other sees only positions, and has an LSTM.
    environments = {"sees": cartpole, "recalls": positions_only}

    def train_and_play(seed):
        policies = train(seed)
        returns = {name: play(policies[name], env) for name, env in environments.items()}
        return fraction_of_goals(returns)

    def play_randomly():
        returns = {name: random_play(env) for name, env in environments.items()}
        return fraction_of_goals(returns)

    # The median of several seeds must reach the mark in test_rllib_agents_learning.json.
    over_seeds(train_and_play, chance=play_randomly)
