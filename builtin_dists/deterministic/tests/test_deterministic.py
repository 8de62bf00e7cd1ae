"""The deterministic distribution: a point mass, in both frameworks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import NoClosedFormError, NotServedError, UnsupportedSpaceError
from rlcatalog_deterministic.tf import Deterministic as TFDeterministic
from rlcatalog_deterministic.torch import Deterministic as TorchDeterministic

INPUTS = np.random.default_rng(0).normal(0, 2, (7, 3)).astype(np.float32)
frameworks = pytest.mark.parametrize(
    "cls", [TorchDeterministic, TFDeterministic], ids=["torch", "tf"]
)


def tensor(cls, value, dtype="float32"):
    return (
        torch.as_tensor(value).to(getattr(torch, dtype))
        if cls is TorchDeterministic
        else tf.cast(value, dtype)
    )


def array(value):
    return (
        value.detach().float().numpy()
        if isinstance(value, torch.Tensor)
        else tf.cast(value, tf.float32).numpy()
    )


@frameworks
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_draw_is_the_inputs(cls, dtype):
    inputs = tensor(cls, INPUTS, dtype)
    dist = cls(inputs)
    for draw in (dist.sample, dist.rsample, dist.deterministic_sample, dist.sample):
        np.testing.assert_array_equal(array(draw()), array(inputs))
        assert draw().dtype == inputs.dtype
    np.testing.assert_array_equal(array(dist.last_sample), array(inputs))
    np.testing.assert_array_equal(array(cls(INPUTS.copy()).sample()), INPUTS)


@frameworks
@pytest.mark.parametrize("rows", [1, 7])
def test_the_logp_of_a_point_mass_is_one_zero_per_row(cls, rows):
    # RLlib returned zeros [B, d] in TensorFlow and had no logp in PyTorch (AttributeError).
    dist = cls(tensor(cls, INPUTS[:rows]))
    sample = dist.sample()
    for actions in (
        sample,
        array(sample),
        array(sample)[:, :, None],
        array(sample).astype(np.float64),
    ):
        np.testing.assert_array_equal(array(dist.logp(actions)), np.zeros(rows))
    np.testing.assert_array_equal(array(dist.sampled_action_logp()), np.zeros(rows))


@frameworks
def test_the_entropy_of_a_point_mass_is_zero_where_rllib_has_none(cls):
    dist = cls(tensor(cls, INPUTS))
    for value in (dist.entropy(), dist.multi_entropy(), dist.entropy_estimate()):
        np.testing.assert_array_equal(array(value), np.zeros(7))


@frameworks
def test_there_is_no_kl_between_points(cls):
    with pytest.raises(NoClosedFormError, match="kl"):
        cls(tensor(cls, INPUTS)).kl(cls(tensor(cls, INPUTS)))


@frameworks
def test_extreme_inputs_stay_as_they_are(cls):
    extremes = np.float32([[0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34]])
    dist = cls(tensor(cls, extremes))
    np.testing.assert_array_equal(array(dist.sample()), extremes)
    np.testing.assert_array_equal(array(dist.logp(extremes)), [0])


def test_the_gradient_flows_through_rsample_only():
    inputs = torch.from_numpy(INPUTS.copy()).requires_grad_()
    dist = TorchDeterministic(inputs)
    assert not dist.sample().requires_grad
    (dist.rsample() * 3).sum().backward()
    np.testing.assert_array_equal(inputs.grad, np.full((7, 3), 3))
    variable = tf.Variable(INPUTS)
    with tf.GradientTape(persistent=True) as tape:
        dist = TFDeterministic(variable)
        sample, draw = dist.sample(), dist.rsample() * 3
    assert tape.gradient(sample, variable) is None
    np.testing.assert_array_equal(tape.gradient(draw, variable), np.full((7, 3), 3))


def test_it_works_inside_a_trace_with_any_number_of_rows():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def act(inputs):
        dist = TFDeterministic(inputs)
        return dist.sample(), dist.sampled_action_logp(), dist.entropy()

    for rows in (1, 7):
        sample, logp, entropy = act(tf.constant(INPUTS[:rows]))
        np.testing.assert_array_equal(sample, INPUTS[:rows])
        assert logp.shape == entropy.shape == (rows,)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_policy_with_deterministic_actions(framework, shape):
    box = spaces.Box(-0.1, 0.1, shape, np.float32)
    config = {"fcnet_hiddens": [4], "custom_action_dist": "deterministic"}
    step = build(spaces.Discrete(3), box, config, framework).act(np.array([0, 1, 2, 0]))
    np.testing.assert_array_equal(step.raw_action, step.dist_inputs)
    assert step.raw_action.shape == (4, max(1, int(np.prod(shape))))
    assert all(np.asarray(action) in box for action in step.action)
    assert (step.logp == 0).all()


@pytest.mark.parametrize(
    ("framework", "cls"), [("torch", TorchDeterministic), ("tf", TFDeterministic)]
)
def test_it_is_chosen_by_name_only(framework, cls):
    box = spaces.Box(-1, 1, (2, 3), np.float32)
    assert ModelCatalog.get_action_dist(box, {}, "deterministic", framework) == (cls, 6)
    assert ModelCatalog.get_action_dist(box, {}, framework=framework)[0] is not cls
    assert cls.required_model_output_shape(box, {}) == 6


@frameworks
def test_another_space_and_a_mask_are_refused_with_typed_errors(cls):
    with pytest.raises(
        UnsupportedSpaceError, match="Deterministic needs a Box of floats, found Discrete"
    ):
        cls.required_model_output_shape(spaces.Discrete(3), {})
    inputs = tensor(cls, INPUTS)
    assert cls.masked(inputs, np.ones((7, 0), bool)) is inputs
    with pytest.raises(
        NotServedError, match=r"Deterministic does not support action masks, .* mask with 3 columns"
    ):
        cls.masked(inputs, np.ones((7, 3), bool))
