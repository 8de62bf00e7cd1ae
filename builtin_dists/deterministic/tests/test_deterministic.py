"""The deterministic distribution: a point mass."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import NoClosedFormError, NotServedError, UnsupportedSpaceError
from rlcatalog.spaces import Simplex
from rlcatalog_deterministic.tf import Deterministic as TFDeterministic
from rlcatalog_deterministic.torch import Deterministic as TorchDeterministic


def random_inputs(rows=7):
    return np.random.default_rng(0).normal(0, 2, (rows, 3)).astype(np.float32)


def make_deterministic(framework, inputs, dtype=None):
    return framework.load("Deterministic")(framework.tensor(inputs, dtype))


# --- samples and densities ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_are_the_inputs(framework, method, dtype):
    dist = make_deterministic(framework, random_inputs(), dtype)

    sample = getattr(dist, method)()

    np.testing.assert_array_equal(framework.numpy(sample), framework.numpy(dist.inputs))
    assert sample.dtype == dist.inputs.dtype


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_last_sample_is_the_inputs(framework, method):
    inputs = random_inputs()
    dist = make_deterministic(framework, inputs)

    getattr(dist, method)()

    np.testing.assert_array_equal(framework.numpy(dist.last_sample), inputs)


def test_inputs_may_be_an_array(framework):
    inputs = random_inputs()

    sample = framework.load("Deterministic")(inputs.copy()).sample()

    np.testing.assert_array_equal(framework.numpy(sample), inputs)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    "convert",
    [
        lambda sample: sample,
        lambda sample: sample[:, :, None],
        lambda sample: sample.astype(np.float64),
    ],
    ids=["array", "rank 3", "float64"],
)
def test_logp_is_one_zero_per_row(framework, rows, convert):
    dist = make_deterministic(framework, random_inputs(rows))
    actions = convert(framework.numpy(dist.sample()))

    # RLlib returns zeros [B, d] in TensorFlow, and has no logp in PyTorch.
    np.testing.assert_array_equal(framework.numpy(dist.logp(actions)), np.zeros(rows))


@pytest.mark.parametrize("rows", [1, 7])
def test_logp_of_sample_is_one_zero_per_row(framework, rows):
    dist = make_deterministic(framework, random_inputs(rows))
    sample = dist.sample()

    np.testing.assert_array_equal(framework.numpy(dist.logp(sample)), np.zeros(rows))
    np.testing.assert_array_equal(framework.numpy(dist.sampled_action_logp()), np.zeros(rows))


@pytest.mark.parametrize("method", ["entropy", "multi_entropy", "entropy_estimate"])
def test_entropy_is_zero(framework, method):
    dist = make_deterministic(framework, random_inputs(rows=7))

    np.testing.assert_array_equal(framework.numpy(getattr(dist, method)()), np.zeros(7))


def test_kl_has_no_closed_form(framework):
    dist = make_deterministic(framework, random_inputs())

    with pytest.raises(NoClosedFormError, match="kl"):
        dist.kl(dist)


def test_extreme_inputs_stay_as_they_are(framework):
    extremes = np.float32([[0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34]])
    dist = make_deterministic(framework, extremes)

    np.testing.assert_array_equal(framework.numpy(dist.sample()), extremes)
    np.testing.assert_array_equal(framework.numpy(dist.logp(extremes)), [0])


# --- gradients and tracing ------------------------------------------------------------------------


def test_rsample_has_a_gradient(framework):
    cls = framework.load("Deterministic")

    gradient = framework.gradient(lambda x: cls(x).rsample() * 3, at=random_inputs(rows=7))

    np.testing.assert_array_equal(gradient, np.full((7, 3), 3))


def test_sample_has_no_gradient_in_torch():
    inputs = torch.from_numpy(random_inputs()).requires_grad_()

    assert not TorchDeterministic(inputs).sample().requires_grad


def test_sample_has_no_gradient_in_tf():
    inputs = tf.Variable(random_inputs())

    with tf.GradientTape() as tape:
        sample = TFDeterministic(inputs).sample()

    assert tape.gradient(sample, inputs) is None


def test_tf_function_takes_any_batch_size():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def sample_and_score(inputs):
        dist = TFDeterministic(inputs)
        return dist.sample(), dist.sampled_action_logp(), dist.entropy()

    for rows in (1, 7):
        inputs = random_inputs(rows)
        sample, logp, entropy = sample_and_score(tf.constant(inputs))

        np.testing.assert_array_equal(sample, inputs)
        assert logp.shape == (rows,)
        assert entropy.shape == (rows,)


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "width"), [((), 1), ((3,), 3), ((2, 3), 6)], ids=str)
def test_policy_acts_as_its_model_says(framework, shape, width):
    box = spaces.Box(-0.1, 0.1, shape, np.float32)
    config = {"fcnet_hiddens": [4], "custom_action_dist": "deterministic"}
    policy = build(spaces.Discrete(3), box, config, framework.name)

    step = policy.act(np.array([0, 1, 2, 0]))

    np.testing.assert_array_equal(step.raw_action, step.dist_inputs)
    assert step.raw_action.shape == (4, width)
    assert all(np.asarray(action) in box for action in step.action)
    assert (step.logp == 0).all()


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
    [
        ((), np.float32, 1),
        ((3,), np.float64, 3),
        ((2, 3), np.float32, 6),
        ((2, 3, 2), np.float16, 12),
    ],
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
    inputs = framework.tensor(random_inputs(rows=7))

    assert framework.load("Deterministic").masked(inputs, np.ones((7, 0), bool)) is inputs


def test_mask_is_an_error(framework):
    inputs = framework.tensor(random_inputs(rows=7))

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load("Deterministic").masked(inputs, np.ones((7, 3), bool))

    assert "Deterministic" in str(caught.value)
    assert "mask with 3 columns" in str(caught.value)
