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
def outputs(policy):
    """Logits of the policy's model for six observations."""
    return policy.model({"obs": random_observations()})[0]


@pytest.fixture(params=[False, True], ids=["eager", "traced"])
def step(policy, request):
    """The backend's step without its memory, which is empty, as a function of (obs, explore)."""

    def run_step(obs, explore):
        sample, logp, value, params, memory = policy.backend.step({"obs": obs}, [], None, explore)
        assert memory == []
        return sample, logp, value, params

    return tf.function(run_step, autograph=False) if request.param else run_step


@pytest.mark.parametrize("explore", [True, False])
def test_step_returns_logp_value_and_inputs_of_the_model(policy, step, explore):
    obs = random_observations()

    sample, logp, value, params = step(obs, explore)

    logits = policy.model({"obs": obs})[0].numpy()
    expected_logp = log_softmax(logits, axis=1)[np.arange(6), sample.numpy()]
    near = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(params, logits, **near)
    np.testing.assert_allclose(logp, expected_logp, **near)
    np.testing.assert_allclose(value, policy.model.value_function().numpy(), **near)


def test_step_without_exploring_returns_most_likely_action(policy, step, outputs):
    sample, *_ = step(random_observations(), False)

    np.testing.assert_array_equal(sample, outputs.numpy().argmax(1))


def test_draw_with_false_tensor_returns_most_likely_action(policy, outputs):
    sample, logp, _ = policy.backend.draw(outputs, None, tf.constant(False), 6)

    np.testing.assert_array_equal(sample, outputs.numpy().argmax(1))
    np.testing.assert_allclose(logp, log_softmax(outputs.numpy(), axis=1).max(1), rtol=1e-5)


def test_draw_with_true_tensor_samples(policy, outputs):
    samples = [policy.backend.draw(outputs, None, tf.constant(True), 6)[0] for _ in range(20)]

    most_likely = outputs.numpy().argmax(1)
    assert not all(np.array_equal(sample.numpy(), most_likely) for sample in samples)


@pytest.mark.parametrize(
    "make_explore",
    [lambda: True, lambda: False, lambda: tf.constant(True)],
    ids=["True", "False", "tensor"],
)
def test_draw_with_mask_returns_allowed_actions(policy, outputs, make_explore):
    mask = tf.constant([[False, True, False, True]] * 6)

    sample, logp, params = policy.backend.draw(outputs, mask, make_explore(), 6)

    # Actions 1 and 3 are the first and second of the allowed ones.
    sample = sample.numpy()
    allowed_logp = log_softmax(outputs.numpy()[:, [1, 3]], axis=1)
    expected_logp = allowed_logp[np.arange(6), (sample - 1) // 2]
    assert set(sample.tolist()) <= {1, 3}
    np.testing.assert_allclose(logp, expected_logp, rtol=1e-5, atol=1e-6)
    assert (params.numpy()[:, [0, 2]] == np.finfo(np.float32).min).all()


def test_draw_from_outputs_with_wrong_number_of_rows_is_an_error(policy, outputs):
    with pytest.raises(ModelContractError, match=r"must return outputs of shape \[7, 4\]"):
        policy.backend.draw(outputs, None, True, 7)


def test_frozen_policy_follows_a_move_of_its_policy():
    policy = build_policy()
    frozen = policy.freeze()
    model_before = policy.model

    policy.to("/cpu:0")  # which builds the model again

    assert policy.model is not model_before
    assert frozen.model is policy.model
    assert frozen.device == "/cpu:0"
    assert frozen.backend == policy.backend
