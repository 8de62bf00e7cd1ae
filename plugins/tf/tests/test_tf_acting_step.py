"""The acting step of TensorFlow's backend, against SciPy and the bare model."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from scipy.special import log_softmax

tf = pytest.importorskip("tensorflow")

import rlcatalog  # noqa: E402
from rlcatalog.errors import ModelContractError  # noqa: E402


def build_policy():
    """Build a policy with observations of three values and four actions."""
    obs_space = Box(-1, 1, (3,), np.float32)
    return rlcatalog.build(obs_space, Discrete(4), {"fcnet_hiddens": [8]}, "tf")


def random_observations():
    return tf.constant(np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32))


@pytest.fixture(scope="module")
def policy():
    return build_policy()


@pytest.fixture(scope="module")
def logits(policy):
    """Logits of the policy's model for six observations, as a tensor."""
    outputs, _ = policy.model({"obs": random_observations()})
    return outputs


def run_step(policy, obs, explore, is_traced):
    """Return what an acting step returns, without the memory, which is empty."""

    def run(obs):
        *results, memory = policy.backend.step({"obs": obs}, [], mask=None, explore=explore)
        assert memory == []
        return results

    return tf.function(run, autograph=False)(obs) if is_traced else run(obs)


def logp_of(actions, logits):
    """Return the log probabilities of actions, one per row."""
    log_probs = log_softmax(np.asarray(logits), axis=1)
    return np.take_along_axis(log_probs, np.asarray(actions)[:, None], axis=1)[:, 0]


eager_and_traced = pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])


@eager_and_traced
@pytest.mark.parametrize("explore", [True, False])
def test_step_returns_logp_value_and_inputs_of_the_model(policy, logits, explore, is_traced):
    obs = random_observations()

    sample, logp, value, dist_inputs = run_step(policy, obs, explore, is_traced)

    assert_close(dist_inputs, logits)
    assert_close(logp, logp_of(sample, logits))
    policy.model({"obs": obs})
    assert_close(value, policy.model.value_function())


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@eager_and_traced
def test_step_without_exploring_returns_most_likely_action(policy, logits, is_traced):
    sample, *_ = run_step(policy, random_observations(), False, is_traced)

    np.testing.assert_array_equal(sample, logits.numpy().argmax(axis=1))


def test_draw_with_false_tensor_returns_most_likely_action(policy, logits):
    sample, logp, _ = policy.backend.draw(logits, None, explore=tf.constant(False), rows=6)

    np.testing.assert_array_equal(sample, logits.numpy().argmax(axis=1))
    assert_close(logp, logp_of(sample, logits))


def test_draw_with_true_tensor_samples(policy, logits):
    samples = []
    for _ in range(20):
        sample, _, _ = policy.backend.draw(logits, None, explore=tf.constant(True), rows=6)
        samples.append(sample.numpy())

    assert (np.stack(samples) != logits.numpy().argmax(axis=1)).any()


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize("is_tensor", [True, False], ids=["tensor", "bool"])
def test_draw_with_mask_returns_allowed_actions(policy, logits, explore, is_tensor):
    mask = np.array([[False, True, False, True]] * 6)
    if is_tensor:
        explore = tf.constant(explore)

    sample, logp, dist_inputs = policy.backend.draw(logits, tf.constant(mask), explore, rows=6)

    assert set(sample.numpy().tolist()) <= {1, 3}
    assert_close(logp, logp_of(sample, np.where(mask, logits.numpy(), -np.inf)))
    assert (dist_inputs.numpy()[:, [0, 2]] == np.finfo(np.float32).min).all()


def test_draw_from_outputs_with_wrong_number_of_rows_is_an_error(policy, logits):
    with pytest.raises(ModelContractError, match=r"must return outputs of shape \[7, 4\]"):
        policy.backend.draw(logits, None, explore=True, rows=7)


def test_frozen_policy_follows_a_move_of_its_policy():
    policy = build_policy()
    frozen = policy.freeze()
    model_before = policy.model

    policy.to("/cpu:0")  # which builds the model again

    assert policy.model is not model_before
    assert frozen.model is policy.model
    assert frozen.device == "/cpu:0"
    assert frozen.backend == policy.backend
