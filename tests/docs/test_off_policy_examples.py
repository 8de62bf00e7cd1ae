"""DQN and SAC of the examples: their losses against known fixed points, in both frameworks."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from masked_env import Masked

from rlcatalog.errors import NotServedError

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import dqn
import sac

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

FRAMEWORKS = ["torch", "tf"]
THREE_FEATURES = Box(-1.0, 1.0, (3,), np.float32)
SMALL = {"fcnet_hiddens": [32], "fcnet_activation": "relu"}


def make_dqn_learner(framework, net, target, lr):
    """Return two functions: observations → values of the net, and its update on a batch."""
    if framework == "torch":
        return dqn.torch_learner(net, target, lr)
    return dqn.tf_learner(net, target, lr)


def make_sac_learner(framework, nets, target_entropy, hyper):
    """Return the function that updates all nets on a batch."""
    if framework == "torch":
        return sac.torch_learner(nets, target_entropy, hyper)
    return sac.tf_learner(nets, target_entropy, hyper)


# --- DQN ------------------------------------------------------------------------------------------


def make_transitions():
    """Return eight transitions with three actions. One next action of each is allowed."""
    rng = np.random.default_rng(0)
    obs, next_obs = rng.uniform(-1, 1, (2, 8, 3)).astype(np.float32)
    is_followed = np.arange(8) % 2  # every other transition ends its episode
    return dqn.Batch(
        obs=obs,
        action=rng.integers(3, size=8),
        reward=rng.normal(size=8).astype(np.float32),
        discount=(0.9 * is_followed).astype(np.float32),
        next_obs=next_obs,
        next_mask=np.eye(3, dtype=bool)[rng.integers(3, size=8)],
    )


def disturb_weights(net):
    """Add noise to the weights of a net."""
    rng = np.random.default_rng(1)
    weights = {}
    for name, value in net.get_weights().items():
        weights[name] = value + rng.normal(0, 0.3, value.shape).astype(np.float32)
    net.set_weights(weights)


@pytest.mark.parametrize(
    ("framework", "dueling"),
    [
        ("torch", False),
        pytest.param("torch", True, marks=pytest.mark.slow),
        pytest.param("tf", False, marks=pytest.mark.slow),
        pytest.param("tf", True, marks=pytest.mark.slow),
    ],
)
def test_dqn_converges_to_reward_plus_discounted_target_value(framework, dueling):
    net, target = dqn.build(Box(-1, 1, (3,)), Discrete(3), framework, SMALL, dueling, seed=0)
    disturb_weights(target)  # so that its values differ from those of the net
    values, update = make_dqn_learner(framework, net, target, lr=0.01)
    target_values, _ = make_dqn_learner(framework, target, net, lr=0.01)
    batch = make_transitions()
    # One action is allowed in each next observation, so that it is the best one.
    next_values = target_values(batch.next_obs)[batch.next_mask]

    for step in range(300):
        update(batch, 0.01 * (1 - step / 300))  # the learning rate falls to 0

    # The values of the actions that were taken in the eight transitions.
    learned_values = values(batch.obs)[np.arange(8), batch.action]
    expected = batch.reward + batch.discount * next_values
    np.testing.assert_allclose(learned_values, expected, atol=5e-3)


def set_constant_values(net, values):
    """Make a net return the same values for every observation."""
    weights = {name: np.zeros_like(value) for name, value in net.get_weights().items()}
    (bias,) = (name for name in weights if name == "output.bias")
    weights[bias] = np.array(values, np.float32)
    net.set_weights(weights)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dqn_evaluates_the_choice_of_the_net_with_the_target(framework):
    net, target = dqn.build(Box(-1, 1, (3,)), Discrete(2), framework, SMALL, dueling=False, seed=0)
    set_constant_values(net, [9.0, 0.0])  # it prefers action 0
    set_constant_values(target, [3.0, 5.0])
    values, update = make_dqn_learner(framework, net, target, lr=0.02)
    target_values, _ = make_dqn_learner(framework, target, net, lr=0.02)
    obs = np.zeros((1, 3), np.float32)
    batch = dqn.Batch(
        obs=obs,
        action=np.array([1]),  # whose value is learned
        reward=np.zeros(1, np.float32),
        discount=np.ones(1, np.float32),
        next_obs=obs,
        next_mask=np.ones((1, 2), bool),  # both next actions are allowed
    )

    for step in range(200):
        update(batch, 0.2 * (1 - step / 200))

    # The target's value of action 0 is 3. The maximum of its values, 5, is not used.
    np.testing.assert_allclose(values(obs), [[9.0, 3.0]], atol=0.05)
    # The target itself is not trained.
    np.testing.assert_array_equal(target_values(obs), [[3.0, 5.0]])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dqn_obeys_masks_of_actions_with_a_start(framework):
    # The environment raises on a forbidden action, and its actions begin at 2.
    hyper = dqn.Hyper(steps=300, learning_starts=100, epsilon_steps=150)
    returns = dqn.train(lambda: Masked("discrete"), framework, hyper=hyper, model=SMALL, episodes=3)
    assert len(returns) == 3
    for episode_return in returns:
        assert 0 < episode_return < 10


class FourSteps(gym.Env):
    """Shows and pays the number of the step: 1, 2, 3, 4. The fourth step is the last.

    Args:
        terminated: Whether the episode is terminated then; otherwise it is truncated.
    """

    observation_space = Box(0.0, 9.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, terminated):
        self.terminated = terminated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        is_last = self.t == 4
        obs = np.full(1, self.t, np.float32)
        return obs, self.t, is_last and self.terminated, is_last and not self.terminated, {}


@pytest.mark.parametrize(("terminated", "last_discount"), [(True, 0.0), (False, 0.5)])
def test_dqn_stores_no_discount_after_termination(terminated, last_discount, monkeypatch):
    transitions = []

    def add(self, obs, action, reward, discount, next_obs, next_mask):
        transitions.append((obs[0], reward, discount, next_obs[0]))

    monkeypatch.setattr(dqn.Replay, "add", add)
    hyper = dqn.Hyper(steps=4, gamma=0.5)

    dqn.train(lambda: FourSteps(terminated), "torch", hyper=hyper, model=SMALL, episodes=1)

    # The observation and the reward are the number of the step. The discount is gamma.
    assert transitions == [
        (0, 1, 0.5, 1),
        (1, 2, 0.5, 2),
        (2, 3, 0.5, 3),
        (3, 4, last_discount, 4),
    ]


def test_dqn_takes_the_best_allowed_action():
    values = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    mask = np.array([[1, 1, 1], [0, 0, 1]], bool)
    np.testing.assert_array_equal(dqn.best(values, mask), [0, 2])


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("example", "env_id", "message"),
    [
        (dqn, "CartPole-v1", "the memory 'lstm' is not supported"),
        (sac, "Pendulum-v1", "a model with memory needs sequences"),
    ],
    ids=["dqn", "sac"],
)
def test_model_with_memory_is_rejected(example, env_id, message, framework):
    model = {"use_lstm": True, "fcnet_hiddens": [8], "lstm_cell_size": 4}
    with pytest.raises((NotServedError, ValueError), match=message):
        example.train(env_id, framework, model=model)


# --- SAC ------------------------------------------------------------------------------------------


class Bandit(gym.Env):
    """One step, whose reward is -2 * (action - 1.5) ** 2. Actions are between -2 and 2."""

    observation_space = THREE_FEATURES
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        reward = -2 * float((action[0] - 1.5) ** 2)
        return np.zeros(3, np.float32), reward, True, False, {}


@pytest.mark.slow  # `make docs-run` trains its critics below
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_sac_finds_the_best_action_of_a_bandit(framework):
    hyper = sac.Hyper(steps=500, learning_starts=100, lr=1e-2, batch_size=64)
    critics = {**SMALL, "fcnet_hiddens": [32, 32]}
    returns = sac.train(Bandit, framework, model=SMALL, q_model=critics, hyper=hyper, episodes=2)
    # -0.1 is 0.22 from the best action; the middle of the bounds has -4.5.
    assert min(returns) > -0.1


def as_tensor(array, framework):
    if framework == "torch":
        import torch

        return torch.from_numpy(array)
    return array


def as_array(tensor, framework):
    return tensor.detach().numpy() if framework == "torch" else tensor.numpy()


class TestSacWithoutNextSteps:
    """Nets trained on six transitions that end their episodes, so that values are rewards."""

    @pytest.fixture(params=["torch", pytest.param("tf", marks=pytest.mark.slow)])
    def framework(self, request):
        return request.param

    @pytest.fixture
    def batch(self):
        rng = np.random.default_rng(0)
        obs, next_obs = rng.uniform(-1, 1, (2, 6, 3)).astype(np.float32)
        action = rng.uniform(-2, 2, (6, 1)).astype(np.float32)
        reward = rng.normal(size=6).astype(np.float32)
        terminated = np.ones(6, np.float32)
        return sac.Batch(obs, action, reward, terminated, next_obs)

    @pytest.fixture
    def nets(self, framework):
        return sac.build(THREE_FEATURES, Bandit.action_space, framework, SMALL, SMALL, seed=0)

    @pytest.fixture
    def learner(self, framework, nets):
        hyper = sac.Hyper(lr=1e-2, tau=0.1)
        return make_sac_learner(framework, nets, -1.0, hyper)

    @pytest.fixture
    def train(self, learner, batch):
        for _ in range(200):
            learner(batch)

    def test_critics_and_targets_converge_to_rewards(self, framework, nets, batch, train):
        for net in [*nets.critics, *nets.targets]:
            values = net(as_tensor(batch.obs, framework), as_tensor(batch.action, framework))
            expected = batch.reward[:, None]
            np.testing.assert_allclose(as_array(values, framework), expected, atol=0.05)

    def test_actions_are_sampled_within_bounds(self, nets, batch):
        actions = nets.actor.act_encoded(np.repeat(batch.obs, 50, axis=0)).action
        assert actions.shape == (300, 1)
        assert np.abs(actions).max() <= 2
        assert np.unique(actions).size > 200
