"""The deterministic distribution: a point mass."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import NoClosedFormError, NotServedError, UnsupportedSpaceError
from rlcatalog.spaces import Simplex
from rlcatalog_deterministic.tf import Deterministic as TFDeterministic

# --- samples and densities ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_are_the_inputs(framework, method, dtype):
    inputs = framework.tensor([[0.5, 0, 1.1e34, -1.1e34, 1.1e-34]], dtype)

    sample = getattr(framework.load("Deterministic")(inputs), method)()

    np.testing.assert_array_equal(framework.numpy(sample), framework.numpy(inputs))
    assert sample.dtype == inputs.dtype


def test_inputs_may_be_an_array(framework):
    dist = framework.load("Deterministic")(np.array([[0.5, 1.5]], np.float32))

    np.testing.assert_array_equal(dist.sample(), [[0.5, 1.5]])


@pytest.mark.parametrize(
    "actions",
    [np.zeros((7, 2), np.float32), np.zeros((7, 2, 1)), np.zeros((7, 2))],
    ids=["float32", "rank 3", "float64"],
)
def test_logp_is_one_zero_per_row(framework, actions):
    dist = framework.load("Deterministic")(np.zeros((7, 2), np.float32))

    # RLlib returns zeros [B, d] in TensorFlow, and has no logp in PyTorch.
    np.testing.assert_array_equal(dist.logp(actions), np.zeros(7))


@pytest.mark.parametrize("method", ["entropy", "multi_entropy", "entropy_estimate"])
def test_entropy_is_one_zero_per_row(framework, method):
    dist = framework.load("Deterministic")(np.zeros((7, 2), np.float32))

    np.testing.assert_array_equal(getattr(dist, method)(), np.zeros(7))


def test_kl_has_no_closed_form(framework):
    dist = framework.load("Deterministic")(np.zeros((7, 2), np.float32))

    with pytest.raises(NoClosedFormError, match="kl"):
        dist.kl(dist)


# --- gradients and tracing ------------------------------------------------------------------------


def test_rsample_has_a_gradient(framework):
    cls = framework.load("Deterministic")

    gradient = framework.gradient(lambda x: 3 * cls(x).rsample(), at=np.float32([[0.5, 1.5]]))

    np.testing.assert_array_equal(gradient, [[3, 3]])


def test_sample_has_no_gradient(framework):
    cls = framework.load("Deterministic")
    inputs = np.zeros((1, 2), np.float32)

    assert not framework.has_gradient(lambda x: cls(x).sample(), at=inputs)


def test_tf_function_takes_any_batch_size():
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def sample_and_score(inputs):
        dist = TFDeterministic(inputs)
        return dist.sample(), dist.sampled_action_logp(), dist.entropy()

    sample, logp, entropy = sample_and_score(tf.constant([[0.5, 1.5], [2.5, 3.5]]))

    np.testing.assert_array_equal(sample, [[0.5, 1.5], [2.5, 3.5]])
    np.testing.assert_array_equal(logp, [0, 0])
    np.testing.assert_array_equal(entropy, [0, 0])


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
def test_policy_acts_as_its_model_says(framework, shape):
    box = spaces.Box(-0.1, 0.1, shape, np.float32)
    config = {"fcnet_hiddens": [4], "custom_action_dist": "deterministic"}
    policy = build(spaces.Discrete(3), box, config, framework.name)

    step = policy.act(np.array([0, 1, 2, 0]))

    np.testing.assert_array_equal(step.raw_action, step.dist_inputs)
    np.testing.assert_array_equal(step.logp, [0, 0, 0, 0])
    assert all(np.asarray(action) in box for action in step.action)


def test_catalog_finds_deterministic_by_name(framework):
    box = spaces.Box(-1, 1, (2, 3), np.float32)

    dist_class, size = ModelCatalog.get_action_dist(box, {}, "deterministic", framework.name)

    assert dist_class is framework.load("Deterministic")
    assert size == 6


def test_catalog_chooses_another_distribution_by_default(framework):
    box = spaces.Box(-1, 1, (2, 3), np.float32)

    dist_class, _ = ModelCatalog.get_action_dist(box, {}, framework=framework.name)

    assert dist_class is not framework.load("Deterministic")


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [((), np.float32, 1), ((3,), np.float64, 3), ((2, 3, 2), np.float16, 12)],
    ids=str,
)
def test_output_shape_is_one_output_per_value(framework, shape, dtype, size):
    box = spaces.Box(-1, 1, shape, dtype)

    assert framework.load("Deterministic").required_model_output_shape(box, {}) == size


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 3, (2,), np.int32),
        spaces.Box(0, 1, (2,), np.bool_),
        Simplex((3,)),
        spaces.MultiBinary(2),
        spaces.Discrete(3),
    ],
    ids=["int32", "bool", "Simplex", "MultiBinary", "Discrete"],
)
def test_space_other_than_float_box_is_an_error(framework, space):
    with pytest.raises(UnsupportedSpaceError, match="needs a Box of floats, found") as caught:
        framework.load("Deterministic").required_model_output_shape(space, {})

    assert f"Deterministic needs a Box of floats, found {type(space).__name__}" in str(caught.value)


def test_empty_mask_leaves_inputs_alone(framework):
    inputs = framework.tensor(np.zeros((7, 3), np.float32))

    assert framework.load("Deterministic").masked(inputs, np.ones((7, 0), bool)) is inputs


def test_mask_is_an_error(framework):
    inputs = framework.tensor(np.zeros((7, 3), np.float32))

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load("Deterministic").masked(inputs, np.ones((7, 3), bool))

    assert "Deterministic" in str(caught.value)
    assert "mask with 3 columns" in str(caught.value)
