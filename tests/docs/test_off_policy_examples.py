"""DQN and SAC of the examples: their losses against fixed points that are known, in both
frameworks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from masked_env import Masked

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import dqn
import sac

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

FRAMEWORKS = ["torch", "tf"]
OBS, SMALL = Box(-1.0, 1.0, (3,), np.float32), {"fcnet_hiddens": [32], "fcnet_activation": "relu"}


def transitions(n=8, actions=3, seed=0):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.uniform(-1, 1, (2, n, 3)).astype(np.float32)
    reward = rng.normal(size=n).astype(np.float32)
    # Every other one is followed by nothing.
    discount = (0.9 * (np.arange(n) % 2)).astype(np.float32)
    # One next action is allowed, so what follows is worth what the target network says of it.
    mask = np.eye(actions, dtype=bool)[rng.integers(actions, size=n)]
    return dqn.Batch(obs, rng.integers(actions, size=n), reward, discount, next_obs, mask)


@pytest.mark.parametrize(
    ("framework", "dueling"),
    [
        pytest.param(name, dueling, marks=pytest.mark.attack if name == "tf" or dueling else ())
        for name in FRAMEWORKS
        for dueling in (True, False)
    ],
)
def test_dqn_values_settle_at_reward_plus_what_the_target_network_says(framework, dueling):
    net, target = dqn.build(OBS, Discrete(3), framework, SMALL, dueling, seed=0)
    learner = dqn.torch_learner if framework == "torch" else dqn.tf_learner
    q_values, update = learner(net, target, 1e-2)
    rng = np.random.default_rng(1)
    weights = target.get_weights().items()
    target.set_weights(
        {
            name: value + rng.normal(0, 0.3, value.shape).astype(np.float32)
            for name, value in weights
        }
    )
    target_values, _ = learner(target, net, 1e-2)
    batch = transitions()
    following = target_values(batch.next_obs)[batch.next_mask]
    for i in range(300):
        update(batch, 1e-2 * (1 - i / 300))
    goal = batch.reward + batch.discount * following
    assert np.abs(following).min() > 0.02  # else the goal would not depend on it
    np.testing.assert_allclose(q_values(batch.obs)[np.arange(8), batch.action], goal, atol=5e-3)
    np.testing.assert_array_equal(target_values(batch.next_obs)[batch.next_mask], following)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dqn_chooses_with_the_network_and_values_with_the_target(framework):
    """Two nets that prefer different actions: the target's value of the network's choice is what
    counts.
    """
    net, target = dqn.build(OBS, Discrete(2), framework, SMALL, False, seed=0)
    weights = {name: np.zeros_like(value) for name, value in net.get_weights().items()}
    bias = next(name for name in weights if name.endswith("logits.bias"))
    net.set_weights({**weights, bias: np.array([9.0, 0.0], np.float32)})
    target.set_weights({**weights, bias: np.array([3.0, 5.0], np.float32)})
    q_values, update = (dqn.torch_learner if framework == "torch" else dqn.tf_learner)(
        net, target, 0.02
    )
    zeros, everything = np.zeros((1, 3), np.float32), np.ones((1, 2), bool)
    nothing, all_of_it = np.zeros(1, np.float32), np.ones(1, np.float32)
    batch = dqn.Batch(zeros, np.array([1]), nothing, all_of_it, zeros, everything)
    for i in range(200):
        update(batch, 0.2 * (1 - i / 200))
    np.testing.assert_allclose(q_values(zeros), [[9.0, 3.0]], atol=0.05)  # 5 with a plain maximum


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dqn_obeys_masks_and_counts_actions_from_their_start(framework):
    """The environment raises on a forbidden action; its actions begin at 2."""
    hyper = dqn.Hyper(steps=300, learning_starts=100, epsilon_steps=150)
    returns = dqn.train(lambda: Masked("discrete"), framework, hyper=hyper, model=SMALL, episodes=3)
    assert len(returns) == 3
    assert all(0 < paid < 10 for paid in returns)


class Counting(gym.Env):
    """Shows and pays the number of the step: 1, 2, 3, 4; the fourth is the end, or a time limit."""

    observation_space, action_space = Box(0.0, 9.0, (1,), np.float32), Discrete(2)

    def __init__(self, terminated):
        self.terminated = terminated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        last = self.t == 4
        return (
            np.full(1, self.t, np.float32),
            self.t,
            last and self.terminated,
            last and not self.terminated,
            {},
        )


@pytest.mark.parametrize("terminated", [True, False])
def test_dqn_stores_what_a_step_paid_and_whether_anything_follows(terminated, monkeypatch):
    stored = []
    monkeypatch.setattr(dqn.Replay, "add", lambda self, *transition: stored.append(transition))
    hyper = dqn.Hyper(steps=8, gamma=0.5)
    dqn.train(lambda: Counting(terminated), "torch", hyper=hyper, model=SMALL, episodes=1)
    last = 0.0 if terminated else 0.5
    expected = [(0, 1, 0.5, 1), (1, 2, 0.5, 2), (2, 3, 0.5, 3), (3, 4, last, 4)] * 2
    assert [
        (obs[0], paid, discount, then[0]) for obs, _, paid, discount, then, _ in stored
    ] == expected


def test_dqn_takes_the_best_of_what_is_allowed():
    q = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    np.testing.assert_array_equal(dqn.best(q, np.array([[1, 1, 1], [0, 0, 1]], bool)), [0, 2])


@pytest.mark.parametrize("example", [dqn, sac])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_with_memory_is_refused(example, framework):
    name = "CartPole-v1" if example is dqn else "Pendulum-v1"
    with pytest.raises(ValueError, match="a model with memory needs sequences"):
        example.train(
            name, framework, model={"use_lstm": True, "fcnet_hiddens": [8], "lstm_cell_size": 4}
        )


class Bandit(gym.Env):
    """One step; the reward falls with the distance from 1.5, in bounds of ±2 that are not the usual
    ones.
    """

    observation_space, action_space = OBS, Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(3, np.float32), -2 * float((action[0] - 1.5) ** 2), True, False, {}


@pytest.mark.attack  # its critics are seen above
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_sac_finds_the_best_action_of_a_bandit(framework):
    hyper = sac.Hyper(steps=500, learning_starts=100, lr=1e-2, batch_size=64)
    returns = sac.train(Bandit, framework, model=SMALL, q_model=SMALL, hyper=hyper, episodes=2)
    assert min(returns) > -0.1  # within 0.22 of it; the middle of the bounds pays -4.5


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
def test_sac_critics_settle_at_the_reward_where_nothing_follows(framework):
    nets = sac.build(OBS, Bandit.action_space, framework, SMALL, SMALL, seed=0)
    learner = sac.torch_learner if framework == "torch" else sac.tf_learner
    hyper = sac.Hyper(lr=1e-2, tau=0.1)
    act, update = learner(nets, -1.0, hyper)
    rng = np.random.default_rng(0)
    obs, next_obs = rng.uniform(-1, 1, (2, 6, 3)).astype(np.float32)
    action, reward = (
        rng.uniform(-2, 2, (6, 1)).astype(np.float32),
        rng.normal(size=6).astype(np.float32),
    )
    before = [net.get_weights() for net in nets.targets]
    for _ in range(200):
        update(sac.Batch(obs, action, reward, np.ones(6, np.float32), next_obs))
    for net, old in zip([*nets.critics, *nets.targets], [None, None, *before], strict=True):
        tensors = [
            __import__("torch").from_numpy(x) if framework == "torch" else x for x in (obs, action)
        ]
        q = net.get_single_q_value(net({"obs": tensors[0]})[0], tensors[1])
        np.testing.assert_allclose(
            q.detach() if framework == "torch" else q, reward[:, None], atol=0.05
        )
        assert old is None or any(
            not np.array_equal(old[name], w) for name, w in net.get_weights().items()
        )
    drawn = act(np.repeat(obs, 50, axis=0), explore=True)
    assert drawn.shape == (300, 1)
    assert np.abs(drawn).max() <= 2
    assert np.unique(drawn).size > 200
