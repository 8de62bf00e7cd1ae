"""Rollouts that a frozen policy collects: with current weights, if it saves time, reproducibly."""

import copy

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


class RandomEnv(gym.Env):
    """Random observations and rewards, in episodes of nine steps.

    Args:
        action_space: Actions, which have no effect.
        masked: Whether observations contain a mask of four columns that allows at least one.
    """

    def __init__(self, action_space, masked=False):
        self.action_space = action_space
        self.masked = masked
        self.observation_space = Box(-2, 2, (3,))
        if masked:
            mask = Box(0, 1, (4,), np.int8)
            self.observation_space = Dict({"x": self.observation_space, "action_mask": mask})

    def _observe(self):
        obs = self.np_random.uniform(-2, 2, 3).astype(np.float32)
        if not self.masked:
            return obs
        mask = self.np_random.integers(0, 2, 4).astype(np.int8)
        mask[self.np_random.integers(4)] = 1
        return {"x": obs, "action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), float(self.np_random.normal()), False, self.steps == 9, {}


def make_algorithm(
    name="PPO", *, action_space=None, masked=False, n_envs=1, frozen="always", seed=0
):
    """Return an algorithm for `RandomEnv`, by default with four actions, and rollouts of 16 steps
    that a frozen policy collects.
    """
    if action_space is None:
        action_space = Discrete(4)
    env = make_vec_env(lambda: for_sb3(RandomEnv(action_space, masked)), n_envs, seed=seed)
    settings = {} if name == "A2C" else {"batch_size": 8, "n_epochs": 2}
    return make(
        name,
        env,
        SMALL,
        frozen,
        n_steps=16,
        device="cpu",
        seed=seed,
        learning_rate=1e-2,
        **settings,
    )


def acting_policy(algorithm):
    """Return the policy that collects rollouts: the frozen policy, or the policy itself."""
    return algorithm.policy.actor_critic.collector.acting


def assert_is_frozen(algorithm):
    """Check that a frozen policy collects rollouts, and has no reason to act without freezing."""
    acting = acting_policy(algorithm)
    assert isinstance(acting, Frozen)
    assert acting.reason is None


# --- collected data -------------------------------------------------------------------------------


class CompareRollouts(BaseCallback):
    """Compares collected log densities and values with those of the policy's weights, at the end
    of each rollout.
    """

    def __init__(self):
        super().__init__()
        #: Mean log density of each rollout.
        self.mean_logps = []

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        obs = buffer.observations
        if isinstance(obs, dict):
            obs = {key: torch.as_tensor(part).flatten(0, 1) for key, part in obs.items()}
        else:
            obs = torch.as_tensor(obs).flatten(0, 1)
        actions = torch.as_tensor(buffer.actions).flatten(0, 1)
        if isinstance(self.model.action_space, Discrete):
            actions = actions.long().flatten()
        with torch.no_grad():
            values, logp, _ = self.model.policy.evaluate_actions(obs, actions)
        np.testing.assert_allclose(buffer.log_probs.ravel(), logp.numpy(), atol=1e-5)
        np.testing.assert_allclose(buffer.values.ravel(), values.numpy().ravel(), atol=1e-5)
        self.mean_logps.append(float(logp.mean()))

    def _on_step(self):
        return True


@pytest.mark.grid
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(
    ("name", "action_space", "masked"),
    [
        pytest.param("PPO", Discrete(4), False, id="Discrete"),
        pytest.param("PPO", MultiDiscrete([3, 2]), False, id="MultiDiscrete"),
        pytest.param("PPO", Box(-1, 1, (2,)), False, id="Box"),
        pytest.param("PPO", Discrete(4), True, id="masks in the observation"),
        pytest.param("MaskablePPO", Discrete(4), True, id="masks from MaskablePPO"),
        pytest.param("A2C", Discrete(4), False, id="A2C"),
    ],
)
def test_collected_data_is_computed_with_current_weights(name, action_space, masked, n_envs):
    if name == "MaskablePPO":
        pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    algorithm = make_algorithm(name, action_space=action_space, masked=masked, n_envs=n_envs)
    # Raises an error if a rollout differs from what the policy's weights compute at its end.
    callback = CompareRollouts()

    algorithm.learn(4 * 16 * n_envs, callback)  # four rollouts of 16 steps

    assert_is_frozen(algorithm)
    # The weights changed after each rollout.
    assert len(set(callback.mean_logps)) == 4


def test_training_with_the_same_seed_gives_the_same_weights():
    def train():
        algorithm = make_algorithm(seed=5)
        algorithm.learn(48)
        return torch.cat([weight.detach().ravel() for weight in algorithm.policy.parameters()])

    assert torch.equal(train(), train())


def add_to_weights(policy):
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1)


def load_half_of_the_weights(policy):
    policy.load_state_dict({name: 0.5 * value for name, value in policy.state_dict().items()})


def load_weights_from_vector(policy):
    policy.load_from_vector(policy.parameters_to_vector() + 0.2)


def load_weights_of_another_policy(policy):
    other = make_algorithm(action_space=Box(-1, 1, (2,)), seed=7).policy
    policy.load_state_dict(other.state_dict())


def compute_values_and_compare(policy, obs):
    """Return a frozen step's values; compare values and log densities with those of the weights."""
    with torch.no_grad():
        actions, values, logp = policy(obs)
        expected_values, expected_logp, _ = policy.evaluate_actions(obs, actions)
    torch.testing.assert_close(logp, expected_logp, atol=1e-5, rtol=0)
    torch.testing.assert_close(values, expected_values, atol=1e-5, rtol=0)
    return values


@pytest.mark.parametrize(
    "change_weights",
    [
        add_to_weights,
        load_half_of_the_weights,
        load_weights_from_vector,
        load_weights_of_another_policy,
    ],
)
def test_frozen_policy_follows_changes_of_the_weights(change_weights):
    policy = make_algorithm(action_space=Box(-1, 1, (2,))).policy
    obs = torch.randn(2, 3)
    values_before = compute_values_and_compare(policy, obs)

    change_weights(policy)

    values_after = compute_values_and_compare(policy, obs)
    assert not torch.allclose(values_before, values_after)


def test_frozen_policy_follows_set_parameters_of_the_algorithm():
    algorithm = make_algorithm(action_space=Box(-1, 1, (2,)))
    other = make_algorithm(action_space=Box(-1, 1, (2,)), seed=7)
    obs = torch.randn(2, 3)
    values_before = compute_values_and_compare(algorithm.policy, obs)

    algorithm.set_parameters(other.get_parameters())

    values_after = compute_values_and_compare(algorithm.policy, obs)
    assert not torch.allclose(values_before, values_after)


def test_forward_with_gradients_is_not_frozen():
    policy = make_algorithm(action_space=Box(-1, 1, (2,))).policy

    _, values, logp = policy(torch.randn(2, 3))

    assert values.requires_grad
    assert logp.requires_grad


# --- when a frozen policy collects ----------------------------------------------------------------


@pytest.fixture
def freeze_after_20_steps(monkeypatch):
    """Let `frozen="auto"` freeze after 20 steps instead of 1,000."""
    monkeypatch.setattr(frozen_collector, "FIRST_STEPS", 20)


@pytest.mark.usefixtures("freeze_after_20_steps")
def test_auto_freezes_after_the_first_steps():
    algorithm = make_algorithm(frozen="auto")

    algorithm.learn(16)
    assert not isinstance(acting_policy(algorithm), Frozen)

    algorithm.learn(32, reset_num_timesteps=False)
    assert isinstance(acting_policy(algorithm), Frozen)


@pytest.mark.usefixtures("freeze_after_20_steps")
@pytest.mark.parametrize(
    ("n_envs", "frozen"),
    [
        # With two environments, freezing saves no time.
        pytest.param(2, "auto", id="two environments"),
        pytest.param(1, "never", id="never"),
    ],
)
def test_policy_is_not_frozen(n_envs, frozen):
    algorithm = make_algorithm(n_envs=n_envs, frozen=frozen)

    algorithm.learn(48 * n_envs)

    assert not isinstance(acting_policy(algorithm), Frozen)


@pytest.mark.usefixtures("freeze_after_20_steps")
def test_auto_stops_freezing_if_rollouts_are_short():
    algorithm = make_algorithm(frozen="auto")
    algorithm.learn(48)
    assert isinstance(acting_policy(algorithm), Frozen)

    algorithm.learn(32)  # the weights change after each rollout of 16 steps, 64 would pay

    assert not isinstance(acting_policy(algorithm), Frozen)


@pytest.mark.usefixtures("freeze_after_20_steps")
def test_auto_goes_on_freezing_if_rollouts_are_long(monkeypatch):
    # The rollouts of this algorithm have 16 steps.
    monkeypatch.setattr(frozen_collector, "SHORTEST_ROLLOUT", 16)
    algorithm = make_algorithm(frozen="auto")

    algorithm.learn(96)

    assert isinstance(acting_policy(algorithm), Frozen)


def test_policy_that_cannot_be_frozen_collects_itself(monkeypatch):
    algorithm = make_algorithm()
    policy = algorithm.policy.catalog_policy
    not_frozen = Frozen(policy, None, "no backend can freeze it")
    monkeypatch.setattr(policy, "freeze", lambda rows, seed: not_frozen)

    algorithm.learn(32)

    assert acting_policy(algorithm).reason == "no backend can freeze it"


def test_unknown_value_of_frozen_is_rejected():
    env = for_sb3(RandomEnv(Discrete(4)))

    with pytest.raises(ConfigError, match="'auto', 'always', 'never', found") as caught:
        A2C(CatalogPolicy, env, policy_kwargs={"frozen": "sometimes"})

    assert "frozen: expected one of" in str(caught.value)
    assert "found 'sometimes'" in str(caught.value)


def test_dqn_cannot_act_with_a_frozen_policy():
    env = for_sb3(RandomEnv(Discrete(4)))

    with pytest.raises(NotServedError, match="frozen='always'"):
        make("DQN", env, SMALL, frozen="always")


# --- copies and memories --------------------------------------------------------------------------


def test_copy_of_a_policy_freezes_its_own_weights():
    algorithm = make_algorithm()
    algorithm.learn(16)

    copied_policy = copy.deepcopy(algorithm.policy)
    obs = torch.randn(2, 3)
    with torch.no_grad():
        for weight in copied_policy.parameters():
            weight.zero_()
        _, values_of_copy, _ = copied_policy(obs)
        _, values, _ = algorithm.policy(obs)

    # Weights of zero compute zeros.
    assert (values_of_copy == 0).all()
    assert (values != 0).all()


def test_loaded_algorithm_is_frozen_as_before(tmp_path):
    algorithm = make_algorithm(frozen="always")
    algorithm.learn(16)
    algorithm.save(tmp_path / "algorithm.zip")

    loaded = PPO.load(tmp_path / "algorithm.zip")

    assert loaded.policy.actor_critic.collector.mode == "always"


@pytest.mark.grid
@pytest.mark.parametrize(
    ("n_envs", "masked", "vf_share_layers"),
    [(1, False, True), (3, False, False), (3, True, True)],
)
def test_frozen_policy_has_the_same_lstm_states(n_envs, masked, vf_share_layers):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    env = make_vec_env(lambda: for_sb3(RandomEnv(Discrete(4), masked)), n_envs, seed=0)
    config = {
        "fcnet_hiddens": [8],
        "use_lstm": True,
        "lstm_cell_size": 5,
        "vf_share_layers": vf_share_layers,
    }
    settings = {"n_steps": 16, "batch_size": 8, "n_epochs": 1, "seed": 0, "device": "cpu"}
    algorithm = make("RecurrentPPO", env, config, frozen="always", **settings)
    algorithm.learn(32 * n_envs)
    assert_is_frozen(algorithm)

    policy = algorithm.policy
    obs, _ = policy.obs_to_tensor(env.reset())
    width = policy.lstm_hidden_state_shape[2]
    zeros = torch.zeros(1, n_envs, width)
    states = RNNStates(pi=(zeros, zeros), vf=(zeros, zeros))
    # Whether an episode starts, in each of up to three environments.
    for starts in ([1, 1, 1], [0, 0, 0], [0, 1, 0]):
        episode_starts = torch.tensor(starts[:n_envs], dtype=torch.float32)
        with torch.no_grad():
            actions, values, logp, new_states = policy(obs, states, episode_starts)
            # These two methods are never frozen.
            distribution, expected_states = policy.get_distribution(obs, states.pi, episode_starts)
            expected_values = policy.predict_values(obs, states.vf, episode_starts)
        expected_logp = distribution.log_prob(actions)
        torch.testing.assert_close(logp, expected_logp, atol=1e-5, rtol=0)
        torch.testing.assert_close(values, expected_values, atol=1e-5, rtol=0)
        torch.testing.assert_close(new_states.pi, expected_states, atol=1e-5, rtol=0)
        assert all(state.any() for state in new_states.pi)
        states = new_states
