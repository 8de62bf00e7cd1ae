"""Collecting with a frozen policy: with the weights of now, when it pays, and one seed gives one
run.
"""

import copy
import itertools

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_policy import Frozen
from rlcatalog_sb3 import CatalogPolicy, for_sb3, frozen_collector
from rlcatalog_sb3.algorithms import make

SMALL = {"fcnet_hiddens": [8]}


class Random(gym.Env):
    """Random observations, rewards that depend on them, and masks that always allow something."""

    def __init__(self, action_space, masked=False):
        self.action_space = action_space
        seen = Box(-2, 2, (3,))
        self.observation_space = (
            Dict({"x": seen, "action_mask": Box(0, 1, (4,), np.int8)}) if masked else seen
        )

    def _look(self):
        obs = self.np_random.uniform(-2, 2, 3).astype(np.float32)
        if isinstance(self.observation_space, Box):
            return obs
        mask = self.np_random.integers(0, 2, 4).astype(np.int8)
        mask[self.np_random.integers(4)] = 1
        return {"x": obs, "action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        self.t += 1
        return self._look(), float(self.np_random.normal()), False, self.t == 9, {}


class Rollouts(BaseCallback):
    """Notes log densities and values as they were collected, and as the weights of
    that time say.
    """

    def __init__(self):
        super().__init__()
        self.pairs = []

    def _on_rollout_end(self):
        buffer, policy = self.model.rollout_buffer, self.model.policy
        if isinstance(buffer.observations, dict):
            obs = {
                key: torch.as_tensor(part).flatten(0, 1)
                for key, part in buffer.observations.items()
            }
        else:
            obs = torch.as_tensor(buffer.observations).flatten(0, 1)
        actions = torch.as_tensor(buffer.actions).flatten(0, 1)
        if isinstance(self.model.action_space, Discrete):
            actions = actions.long().flatten()
        with torch.no_grad():
            values, logp, _ = policy.evaluate_actions(obs, actions)
        self.pairs.append(
            (buffer.log_probs.ravel(), logp.numpy(), buffer.values.ravel(), values.numpy().ravel())
        )

    def _on_step(self):
        return True


CASES = {
    "a choice": ("PPO", Discrete(4), False),
    "several choices": ("PPO", MultiDiscrete([3, 2]), False),
    "a Box": ("PPO", Box(-1, 1, (2,)), False),
    "masks in the observation": ("PPO", Discrete(4), True),
    "masks handed on": ("MaskablePPO", Discrete(4), True),
    "A2C": ("A2C", Discrete(4), False),
}


def algorithm(case, envs=1, frozen="always", seed=0):
    name, space, masked = CASES[case]
    settings = {"n_steps": 16} | ({} if name == "A2C" else {"batch_size": 8, "n_epochs": 2})
    env = make_vec_env(lambda: for_sb3(Random(space, masked)), envs, seed=seed)
    return make(name, env, SMALL, frozen, device="cpu", seed=seed, learning_rate=1e-2, **settings)


@pytest.mark.grid
@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_what_was_collected_has_the_densities_of_the_weights_of_then(case, envs):
    if CASES[case][0] == "MaskablePPO":
        pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    algo, rollouts = algorithm(case, envs), Rollouts()
    algo.learn(4 * 16 * envs, rollouts)
    acting = algo.policy.actor_critic.collector.acting
    assert isinstance(acting, Frozen)
    assert acting.reason is None
    assert len(rollouts.pairs) == 4
    for logp, expected, value, expected_value in rollouts.pairs:
        np.testing.assert_allclose(logp, expected, atol=1e-5)
        np.testing.assert_allclose(value, expected_value, atol=1e-5)
    means = [pair[1].mean() for pair in rollouts.pairs]
    assert len(set(means)) == 4  # the weights did change


def test_one_seed_gives_one_run():
    runs = []
    for _ in range(2):
        algo = algorithm("a choice", seed=5)
        algo.learn(48)
        runs.append(torch.cat([p.detach().ravel() for p in algo.policy.parameters()]))
    assert torch.equal(*runs)


def test_weights_are_those_of_now_however_they_were_written():
    algo = algorithm("a Box")
    obs, policy = torch.randn(2, 3), algo.policy

    def check():
        with torch.no_grad():
            actions, values, logp = policy(obs)
            expected_values, expected, _ = policy.evaluate_actions(obs, actions)
        torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(values, expected_values, atol=1e-5, rtol=0)
        return values

    seen = [check()]
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1)
    seen.append(check())
    policy.load_state_dict({name: 0.5 * value for name, value in policy.state_dict().items()})
    seen.append(check())
    policy.load_from_vector(policy.parameters_to_vector() + 0.2)
    seen.append(check())
    algo.set_parameters(algorithm("a Box", seed=7).get_parameters())
    seen.append(check())
    for before, after in itertools.pairwise(seen):
        assert not torch.allclose(before, after)


def test_auto_waits_and_goes_by_what_was_measured(monkeypatch):
    monkeypatch.setattr(frozen_collector, "FIRST_STEPS", 20)

    def acting(algo):
        return algo.policy.actor_critic.collector.acting

    one, many, never = (
        algorithm("a choice", *asked) for asked in ((1, "auto"), (2, "auto"), (1, "never"))
    )
    one.learn(16)
    assert not isinstance(acting(one), Frozen)
    for algo in (one, many, never):
        algo.learn(32 * algo.n_envs, reset_num_timesteps=False)
    assert not isinstance(acting(many), Frozen)
    assert not isinstance(acting(never), Frozen)
    assert isinstance(acting(one), Frozen)
    one.learn(32)  # rollouts of 16 steps, and new weights after each
    assert not isinstance(acting(one), Frozen)
    monkeypatch.setattr(frozen_collector, "SHORTEST_ROLLOUT", 16)
    again = algorithm("a choice", 1, "auto")
    again.learn(96)
    assert isinstance(acting(again), Frozen)


@pytest.mark.grid
@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_a_memory_is_carried_as_the_policy_itself_carries_it(shared, masked, envs):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    env = make_vec_env(lambda: for_sb3(Random(Discrete(4), masked)), envs, seed=0)
    config = {**SMALL, "use_lstm": True, "lstm_cell_size": 5, "vf_share_layers": shared}
    algo = make(
        "RecurrentPPO",
        env,
        config,
        "always",
        device="cpu",
        seed=0,
        n_steps=16,
        batch_size=8,
        n_epochs=1,
    )
    algo.learn(32 * envs)
    policy = algo.policy
    actor_critic, rng = policy.actor_critic, np.random.default_rng(0)
    zeros = torch.zeros(1, envs, policy.lstm_hidden_state_shape[2])
    states = RNNStates((zeros, zeros), (zeros, zeros))
    obs = env.reset()
    with torch.no_grad():
        for _ in range(12):
            starts = torch.as_tensor(rng.random(envs) < 0.2, dtype=torch.float32)
            tensors = policy.obs_to_tensor(obs)[0]
            actions, values, logp, after = policy(tensors, states, starts)
            dist, expected = policy.get_distribution(tensors, states.pi, starts)
            torch.testing.assert_close(logp, dist.log_prob(actions), atol=1e-5, rtol=0)
            torch.testing.assert_close(
                values, policy.predict_values(tensors, states.vf, starts), atol=1e-5, rtol=0
            )
            for found, kept in zip(after.pi, expected, strict=True):
                torch.testing.assert_close(found, kept, atol=1e-5, rtol=0)
            assert any(part.any() for part in after.pi)
            states, (obs, *_) = after, env.step(actions.numpy())
    acting = actor_critic.collector.acting
    assert isinstance(acting, Frozen)
    assert acting.reason is None


def test_gradients_are_never_lost():
    policy = algorithm("a Box").policy
    _, values, logp = policy(torch.randn(2, 3))
    assert values.requires_grad
    assert logp.requires_grad


def test_a_policy_that_cannot_be_frozen_collects_as_it_is(monkeypatch):
    algo = algorithm("a choice")
    inner = algo.policy.catalog_policy
    monkeypatch.setattr(inner, "freeze", lambda rows, seed: Frozen(inner, None, "nothing here can"))
    algo.learn(32)
    assert algo.policy.actor_critic.collector.acting.reason == "nothing here can"


def test_copies_and_saved_ones_freeze_for_themselves(tmp_path):
    algo = algorithm("a choice")
    algo.learn(16)
    copied = copy.deepcopy(algo.policy)
    obs = torch.randn(2, 3)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.zero_()
        assert not copied(obs)[1].any()
        assert algo.policy(obs)[1].all()
    algo.save(tmp_path / "algo.zip")
    loaded = PPO.load(tmp_path / "algo.zip")
    assert loaded.policy.actor_critic.collector.mode == "always"


def test_refusals():
    env = for_sb3(Random(Discrete(4)))
    with pytest.raises(
        ConfigError, match="frozen: expected one of 'auto', 'always', 'never', found 'sometimes'"
    ):
        A2C(CatalogPolicy, env, policy_kwargs={"frozen": "sometimes"})
    with pytest.raises(NotServedError, match="DQN does not act with a catalog policy"):
        make("DQN", env, SMALL, "always")
