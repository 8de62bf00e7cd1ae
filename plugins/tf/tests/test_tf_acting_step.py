"""The acting step of TensorFlow's backend, on tensors, against SciPy and the bare model."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from scipy.special import log_softmax

tf = pytest.importorskip("tensorflow")

import rlcatalog  # noqa: E402
from rlcatalog.errors import ModelContractError  # noqa: E402

ROWS = 6
OBS = Box(-1, 1, (3,), np.float32)


@pytest.fixture(scope="module")
def policy():
    return rlcatalog.build(OBS, Discrete(4), {"fcnet_hiddens": [8]}, "tf")


@pytest.fixture(scope="module")
def outputs(policy):
    obs = np.random.default_rng(0).uniform(-1, 1, (ROWS, 3)).astype(np.float32)
    return policy.model({"obs": tf.constant(obs)})[0]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("explore", [True, False])
def test_a_step_returns_actions_and_their_density_the_value_and_the_inputs(policy, explore, traced):
    obs = np.random.default_rng(1).uniform(-1, 1, (ROWS, 3)).astype(np.float32)

    def step(obs):
        sample, logp, value, params, memory = policy.backend.step({"obs": obs}, [], None, explore)
        assert memory == []
        return sample, logp, value, params

    run = tf.function(step, autograph=False) if traced else step
    sample, logp, value, params = (part.numpy() for part in run(tf.constant(obs)))
    expected = policy.model({"obs": tf.constant(obs)})[0].numpy()
    np.testing.assert_allclose(params, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        logp, log_softmax(expected, 1)[np.arange(ROWS), sample], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(value, policy.model.value_function().numpy(), rtol=1e-5, atol=1e-6)
    if not explore:
        np.testing.assert_array_equal(sample, expected.argmax(1))


def test_a_tensor_decides_between_the_sample_and_the_most_likely_action(policy, outputs):
    likely, logp, _ = policy.backend.draw(outputs, None, tf.constant(False), ROWS)
    np.testing.assert_array_equal(likely, outputs.numpy().argmax(1))
    np.testing.assert_allclose(logp, log_softmax(outputs.numpy(), 1).max(1), rtol=1e-5)
    drawn = [
        policy.backend.draw(outputs, None, tf.constant(True), ROWS)[0].numpy() for _ in range(20)
    ]
    assert not all(np.array_equal(one, likely) for one in drawn)


def test_what_a_mask_forbids_is_never_drawn(policy, outputs):
    mask = tf.constant([[False, True, False, True]] * ROWS)
    for explore in (True, False, tf.constant(True)):
        sample, logp, params = (
            part.numpy() for part in policy.backend.draw(outputs, mask, explore, ROWS)
        )
        assert set(sample.tolist()) <= {1, 3}
        allowed = log_softmax(outputs.numpy()[:, [1, 3]], 1)
        np.testing.assert_allclose(
            logp, allowed[np.arange(ROWS), (sample - 1) // 2], rtol=1e-5, atol=1e-6
        )
        assert (params[:, [0, 2]] == np.finfo(np.float32).min).all()


def test_outputs_of_another_shape_are_refused(policy, outputs):
    with pytest.raises(ModelContractError, match=r"must return outputs of shape \[7, 4\]"):
        policy.backend.draw(outputs, None, True, ROWS + 1)


def test_a_frozen_policy_shows_what_its_policy_has_become():
    """TensorFlow's policies act no faster frozen; a move to a device makes their model anew."""
    policy = rlcatalog.build(OBS, Discrete(4), {"fcnet_hiddens": [8]}, "tf")
    frozen, former = policy.freeze(), policy.model
    policy.to("/cpu:0")
    assert policy.model is not former
    assert frozen.model is policy.model
    assert (frozen.device, frozen.backend) == ("/cpu:0", policy.backend)
