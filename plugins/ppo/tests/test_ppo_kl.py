"""PPO's penalty on the KL divergence from the policy that collected the rollout."""

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from scipy.special import log_softmax

import rlcatalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_tf import Categorical as TensorFlowCategorical
from rlcatalog_torch import Categorical

pytestmark = pytest.mark.twins

#: Four environments, and rollouts of 32 steps in each.
SMALL = {
    "num_envs": 4,
    "rollout_length": 32,
    "minibatch_size": 64,
    "num_epochs": 4,
    "seed": 0,
    "lr": 3e-3,
    "model": {"fcnet_hiddens": [16]},
}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def to_array(tensor):
    return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)


def collect_batch(algo, *, steps=32):
    """Collect a rollout; return its batch with the parameters of the action distributions."""
    rollout = algo._collector.collect(steps)
    return training_batch(rollout, algo.config.gamma, algo.config.lambda_, dist_inputs=True)


def train_away_from_batch(algo):
    """Take three iterations; return the last rollout's batch, which an older policy collected."""
    algo.train()
    algo.train()
    batch = collect_batch(algo)
    algo._learner.update(batch, algo.config.lr)
    return batch


# --- the divergence -------------------------------------------------------------------------------


@both_frameworks
def test_kl_is_from_old_to_new_distribution(framework):
    # So small a coefficient has no influence, but the KL divergence is computed.
    config = {**SMALL, "framework": framework, "kl_coeff": 1e-9, "kl_target": 0.0}
    algo = PPO("CartPole-v1", config)
    batch = train_away_from_batch(algo)

    evaluation = algo.policy.evaluate(batch)

    # KL(old, new) is the sum of old * (log old - log new) over the actions.
    old_logp = log_softmax(batch["dist_inputs"], axis=1)
    new_logp = log_softmax(to_array(evaluation.dist.inputs), axis=1)
    expected = (np.exp(old_logp) * (old_logp - new_logp)).sum(axis=1)
    assert expected.max() > 1e-4  # the policies differ
    np.testing.assert_allclose(to_array(evaluation.kl), expected, atol=1e-5)


@pytest.mark.parametrize(("kl_target", "factor"), [(1e-7, 2.0), (10.0, 0.5)])
def test_kl_coeff_doubles_above_and_halves_below_target(kl_target, factor):
    algo = PPO("CartPole-v1", {**SMALL, "kl_coeff": 0.2, "kl_target": kl_target})

    coefficients = [algo.train()["info"]["learner"]["kl_coeff"] for _ in range(3)]

    assert coefficients == [0.2, 0.2 * factor, 0.2 * factor**2]


def test_kl_is_not_computed_without_coefficient():
    algo = PPO("CartPole-v1", SMALL)
    assert "kl_coeff" not in algo.train()["info"]["learner"]

    batch = algo._batch(algo._collector.collect(4))

    assert algo.policy.evaluate(batch).kl is None


# --- actions of dependent parts -------------------------------------------------------------------


def build_autoregressive(framework):
    """Return two policies whose second action depends on the first, with different weights."""
    space = MultiDiscrete([3, 4])
    config = {"use_autoregressive": True, "fcnet_hiddens": [8]}
    old = rlcatalog.build(Box(-1, 1, (2,)), space, config, framework)
    new = rlcatalog.build(Box(-1, 1, (2,)), space, config, framework)
    weights = old.model.get_weights()
    rng = np.random.default_rng(0)
    for policy in (old, new):
        noisy = {name: w + rng.normal(0, 0.7, w.shape) for name, w in weights.items()}
        policy.model.set_weights(noisy)
    return old, new


def act_often(policy, obs):
    """Return a batch of 4000 actions for one observation."""
    rows = np.tile(obs, (4000, 1))
    step = policy.act(rows)
    return {"obs": rows, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}


def joint_kl(old, new, obs):
    """Return the KL divergence as a sum over all 12 actions of MultiDiscrete([3, 4])."""
    all_actions = np.array(list(np.ndindex(3, 4)), np.int64)
    batch = {"obs": np.tile(obs, (12, 1)), "raw_action": all_actions}
    old_logp = to_array(old.evaluate(batch).logp)
    new_logp = to_array(new.evaluate(batch).logp)
    return float((np.exp(old_logp) * (old_logp - new_logp)).sum())


@both_frameworks
def test_kl_of_dependent_parts_estimates_joint_kl(framework):
    old, new = build_autoregressive(framework)
    obs = np.float32([0.3, -0.2])

    kl = to_array(new.evaluate(act_often(old, obs)).kl)

    # The second part's divergence depends on the first action that was drawn, so each of the 4,000
    # rows is an estimate of the divergence of both parts together.
    expected = joint_kl(old, new, obs)
    standard_error = kl.std() / np.sqrt(4000)
    assert expected > 0.1  # the policies differ
    assert abs(kl.mean() - expected) < 4 * standard_error


# --- distributions of users -----------------------------------------------------------------------


def test_distribution_without_kl_is_refused_by_name():
    class WithoutKL(Categorical):
        def kl(self, other):
            raise NoClosedFormError("WithoutKL has no closed form for its kl")

    config = {**SMALL, "kl_coeff": 0.1, "model": {"custom_action_dist": WithoutKL}}
    algo = PPO("CartPole-v1", config)

    with pytest.raises(NoClosedFormError, match="WithoutKL"):
        algo.train()


@pytest.mark.parametrize(
    ("framework", "base"), [("torch", Categorical), ("tf", TensorFlowCategorical)]
)
def test_kl_of_distribution_that_needs_model(framework, base):
    class Tempered(base):
        """Has the constructor of RLlib's distributions, with the model as second argument."""

        def __init__(self, inputs, model):
            assert model.num_outputs == 2  # CartPole has two actions
            super().__init__(inputs / 2.0, model)

    model = {"custom_action_dist": Tempered, "fcnet_hiddens": [16]}
    algo = PPO("CartPole-v1", {**SMALL, "framework": framework, "kl_coeff": 0.1, "model": model})

    algo.train()

    batch = collect_batch(algo, steps=8)
    kl = to_array(algo.policy.evaluate(batch).kl)
    assert kl.shape == (8 * 4,)  # steps * environments
    np.testing.assert_allclose(kl, 0.0, atol=1e-6)  # the policy that acted is still the same
