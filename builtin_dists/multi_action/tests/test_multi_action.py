"""The distribution of Tuple and Dict spaces: densities, forms of actions, samples and errors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from scipy import stats

import rlcatalog
from rlcatalog import ModelCatalog, TupleActions
from rlcatalog.errors import ModelContractError, NoClosedFormError, UnsupportedSpaceError
from rlcatalog_torch import Categorical, MultiActionDistribution as TorchMultiActionDistribution


def make_dist(framework, space, inputs):
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    return dist_class(framework.tensor(inputs, "float32"))


# --- the number of inputs -------------------------------------------------------------------------


class PairOfLogits(Categorical):
    """A distribution of the program with two inputs for each choice."""

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return 2 * int(action_space.n)


def test_number_of_inputs_is_that_of_the_catalog_of_the_config():
    catalog = rlcatalog.Catalog()
    catalog.register_action_dist("pair", PairOfLogits)  # unknown to the default catalog
    config = {"custom_action_dist": {"action[0]": "pair"}}
    space = Tuple([Discrete(2), Discrete(3)])
    policy = rlcatalog.build(Box(-1, 1, (4,)), space, config, "torch", catalog=catalog)

    size = policy.dist_class.required_model_output_shape(space, policy.config)

    assert size == 2 * 2 + 3
    assert size == policy.resolution.num_outputs


def test_registered_joint_distribution_counts_with_its_catalog():
    class OwnJoint(TorchMultiActionDistribution):
        @classmethod
        def required_model_output_shape(cls, action_space, model_config=None):
            return super().required_model_output_shape(action_space, model_config)

    catalog = rlcatalog.Catalog()
    catalog.register_action_dist("pair", PairOfLogits)
    config = {"custom_action_dist": {"action": OwnJoint, "action[0]": "pair"}}
    space = Tuple([Discrete(2), Discrete(3)])

    policy = rlcatalog.build(Box(-1, 1, (4,)), space, config, "torch", catalog=catalog)

    assert policy.resolution.num_outputs == 2 * 2 + 3


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_sum_over_leaves(framework):
    # Two logits of the choice, with probabilities 1/4 and 3/4; mean and log deviation of the Box.
    inputs = [[0, np.log(3), 0.5, np.log(2)]]
    dist = make_dist(framework, Tuple([Discrete(2), Box(-1, 1, (1,))]), inputs)

    logp = dist.logp(np.array([[1, 0.7]]))

    expected = np.log(3 / 4) + stats.norm.logpdf(0.7, loc=0.5, scale=2)
    np.testing.assert_allclose(logp, [expected], rtol=1e-5)


def test_entropy_is_sum_over_leaves(framework):
    # Equal logits, and a standard normal.
    dist = make_dist(framework, Tuple([Discrete(5), Box(-1, 1, (1,))]), np.zeros((1, 7)))

    expected = np.log(5) + stats.norm.entropy()
    assert dist.entropy_kind == "exact"
    np.testing.assert_allclose(dist.entropy(), [expected], rtol=1e-5)
    # Exact entropies are not estimated.
    np.testing.assert_allclose(dist.entropy_estimate(), [expected], rtol=1e-5)


def test_multi_entropy_is_entropy_of_each_child(framework):
    space = Tuple([Discrete(2), Tuple([Discrete(3), Discrete(4)])])

    dist = make_dist(framework, space, np.zeros((1, 2 + 3 + 4)))

    np.testing.assert_allclose(dist.multi_entropy(), [[np.log(2), np.log(3 * 4)]], rtol=1e-5)


def test_multi_kl_is_kl_of_each_child(framework):
    space = Tuple([Discrete(2), Box(-1, 1, (1,))])
    p = make_dist(framework, space, [[0, 0, 0, 0]])  # probabilities 1/2 and 1/2; mean 0
    q = make_dist(framework, space, [[0, np.log(3), 1, 0]])  # probabilities 1/4 and 3/4; mean 1

    kl_of_choice = 1 / 2 * np.log(2) + 1 / 2 * np.log(2 / 3)
    kl_of_box = 1 / 2  # of normal distributions whose means are one deviation apart
    np.testing.assert_allclose(p.multi_kl(q), [[kl_of_choice, kl_of_box]], rtol=1e-5)
    np.testing.assert_allclose(p.kl(q), [kl_of_choice + kl_of_box], rtol=1e-5)


@pytest.fixture
def dist_with_estimate(framework):
    """A choice of equal logits among five, and a Gaussian whose entropy is estimated as 3."""
    gaussian = framework.load("DiagGaussian")

    class Estimated(gaussian):
        entropy_kind = "estimate"

        def entropy(self):
            raise NoClosedFormError("none")

        def entropy_estimate(self):
            return 0 * gaussian.entropy(self) + 3

    return framework.load("MultiActionDistribution")(
        framework.tensor(np.zeros((1, 7), np.float32)),
        child_distributions=[framework.load("Categorical"), Estimated],
        input_lens=[5, 2],
        action_space=Tuple([Discrete(5), Box(-1, 1, (1,))]),
    )


def test_entropy_is_estimated_if_that_of_a_leaf_is(framework, dist_with_estimate):
    assert dist_with_estimate.entropy_kind == "estimate"
    # The class has not changed.
    assert framework.load("MultiActionDistribution").entropy_kind == "exact"
    with pytest.raises(NoClosedFormError, match=r"action\[1\]"):
        dist_with_estimate.entropy()


def test_entropy_estimate_adds_exact_entropies(dist_with_estimate):
    np.testing.assert_allclose(dist_with_estimate.entropy_estimate(), [np.log(5) + 3], rtol=1e-5)


def test_kl_is_defined_if_an_entropy_is_estimated(dist_with_estimate):
    np.testing.assert_allclose(dist_with_estimate.kl(dist_with_estimate), [0], atol=1e-6)


# --- forms of actions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        (np.array([1]), np.array([[0.1, 0.2, 0.3, 0.4]])),
        [np.array([1]), np.array([[0.1, 0.2, 0.3, 0.4]])],
        TupleActions([np.array([1]), np.array([[0.1, 0.2, 0.3, 0.4]])]),
        (np.array([[1.0]]), np.array([[0.1, 0.2, 0.3, 0.4]])),
        (np.array([1]), np.array([[[0.1, 0.2], [0.3, 0.4]]])),
        np.array([[1, 0.1, 0.2, 0.3, 0.4]], np.float32),
        np.array([[0.9, 0.1, 0.2, 0.3, 0.4]]),
    ],
    ids=[
        "tuple",
        "list",
        "TupleActions",
        "choice as column of floats",
        "shape of the Box",
        "flat array",
        "rounded choice",
    ],
)
def test_logp_takes_actions_in_any_form(framework, action):
    space = Tuple([Discrete(2), Box(-1, 1, (2, 2))])
    # Two logits of the choice, with probabilities 1/4 and 3/4; four means and log deviations.
    dist = make_dist(framework, space, [[0, np.log(3), *[0.5] * 4, *[0.0] * 4]])

    logp = dist.logp(action)

    expected = np.log(3 / 4) + stats.norm.logpdf([0.1, 0.2, 0.3, 0.4], loc=0.5).sum()
    np.testing.assert_allclose(logp, [expected], rtol=1e-5)


def test_logp_of_changed_sample_is_of_new_values(framework):
    # Two logits of the choice, with probabilities 1/4 and 3/4; mean and log deviation of the Box.
    inputs = [[0, np.log(3), 0, 0]]
    dist = make_dist(framework, Dict(x=Discrete(2), y=Box(-1, 1, (1,))), inputs)

    sample = dist.sample()
    sample["x"] = framework.tensor([1])
    sample["y"] = framework.tensor([[0.0]], "float32")

    np.testing.assert_allclose(dist.logp(sample), [np.log(3 / 4) + stats.norm.logpdf(0)], rtol=1e-5)


def test_join_keeps_integers_beside_half_precision(framework):
    space = Tuple([Discrete(3000), Box(-1, 1, (1,))])
    dist = make_dist(framework, space, np.zeros((1, 3000 + 2)))
    choice = framework.tensor([2999])  # float16 would round it to 3000

    flat = dist.join((choice, framework.tensor([[0.5]], "float16")))

    np.testing.assert_array_equal(flat, [[2999, 0.5]])
    assert framework.numpy(flat).dtype == np.float32


# --- samples --------------------------------------------------------------------------------------


def test_rsample_has_gradients_and_sample_has_none():
    space = Tuple([Discrete(2), Box(-1, 1, (1,))])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework="torch")
    dist = dist_class(torch.zeros(1, 4, requires_grad=True))

    _, sampled_box = dist.sample()
    _, reparameterised_box = dist.rsample()

    assert not sampled_box.requires_grad
    assert reparameterised_box.requires_grad


def test_tf_function_traces_without_a_batch_size():
    space = Tuple([Discrete(2), Box(-1, 1, (1,))])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework="tf")

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def sample_and_score(inputs):
        dist = dist_class(inputs)
        sample = dist.sample()
        return dist.join(sample), dist.logp(sample), dist.logp(dist.join(sample)), dist.entropy()

    # With zeros: two equal logits, and a standard normal.
    sample, logp, logp_of_flat, entropy = sample_and_score(tf.zeros([7, 4]))

    np.testing.assert_allclose(logp, np.log(1 / 2) + stats.norm.logpdf(sample[:, 1]), rtol=1e-5)
    np.testing.assert_allclose(logp_of_flat, logp, rtol=1e-5)
    np.testing.assert_allclose(entropy, [np.log(2) + stats.norm.entropy()] * 7, rtol=1e-5)


# --- errors ---------------------------------------------------------------------------------------

#: Value of a choice in one row.
ZERO = np.array([0])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ((ZERO,), "one for each of the 4 leaves, found 1"),
        ((ZERO, {"x": ZERO}), r"\[1\]: .* keys \['x', 'y'\].*\['x'\]"),
        ((ZERO, {"x": ZERO, "y": (ZERO, ZERO), "z": ZERO}), r"keys \['x', 'y', 'z'\]"),
        ((ZERO, (ZERO, (ZERO, ZERO))), r"\[1\]: expected a dict .* found a tuple"),
        ((ZERO, {"x": ZERO, "y": (ZERO,)}), r"action\[1\]\['y'\]: .* 2 parts, found 1"),
        ({"x": ZERO}, "a tuple of 2 parts, found a dict"),
        (
            (np.zeros((1, 2)), {"x": ZERO, "y": (ZERO, ZERO)}),
            r"action\[0\]: expected 1 raw value",
        ),
        (None, "a tuple of 2 parts, found a NoneType"),
    ],
    ids=[
        "missing part",
        "missing key",
        "unknown key",
        "tuple for dict",
        "missing inner part",
        "dict for tuple",
        "two columns",
        "None",
    ],
)
def test_logp_of_wrong_structure_is_an_error(framework, action, message):
    space = Tuple([Discrete(2), Dict(x=Discrete(3), y=Tuple([Discrete(2), Discrete(2)]))])
    dist = make_dist(framework, space, np.zeros((1, 2 + 3 + 2 + 2)))

    with pytest.raises(ModelContractError, match=message):
        dist.logp(action)


@pytest.mark.parametrize("shape", [(7, 2), (5, 3)], ids=["missing column", "missing rows"])
def test_logp_of_flat_actions_of_wrong_shape_is_an_error(framework, shape):
    space = Tuple([Discrete(2), Box(-1, 1, (2,))])
    dist = make_dist(framework, space, np.zeros((7, 2 + 4)))

    with pytest.raises(ModelContractError, match=r"expected actions of shape \(7, 3\)") as caught:
        dist.logp(np.zeros(shape, np.float32))

    assert f"(action[0]: 1, action[1]: 2), found {shape}" in str(caught.value)


def make_by_hand(framework, **changes):
    """Create the distribution of a choice among five and a Box by hand."""
    options = {
        "child_distributions": [framework.load("Categorical"), framework.load("DiagGaussian")],
        "input_lens": [5, 2],
        "action_space": Tuple([Discrete(5), Box(-1, 1, (1,))]),
    }
    inputs = framework.tensor(np.zeros((1, 7), np.float32))
    return framework.load("MultiActionDistribution")(inputs, **{**options, **changes})


def test_missing_input_len_is_an_error(framework):
    with pytest.raises(ModelContractError, match="2 child_distributions, but 1 input_lens"):
        make_by_hand(framework, input_lens=[5])


def test_missing_child_is_an_error(framework):
    with pytest.raises(ModelContractError, match="expected 2 child_dist"):
        make_by_hand(framework, child_distributions=[framework.load("Categorical")], input_lens=[7])


def test_wrong_input_lens_are_an_error(framework):
    with pytest.raises(ModelContractError, match=r"9 model outputs \(action\[0\]: 5"):
        make_by_hand(framework, input_lens=[5, 4])


def test_missing_action_space_is_an_error(framework):
    with pytest.raises(ModelContractError, match="action_space="):
        make_by_hand(framework, action_space=None)


def test_action_space_without_parts_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="needs a non-empty Tuple or Dict"):
        make_by_hand(framework, action_space=Discrete(2))


def test_kl_with_other_parts_is_an_error(framework):
    two_choices = make_dist(framework, Tuple([Discrete(3), Discrete(4)]), np.zeros((1, 7)))

    with pytest.raises(ModelContractError, match="same parts"):
        two_choices.kl(make_by_hand(framework))


def test_kl_with_other_kind_is_an_error(framework):
    categorical = framework.load("Categorical")(np.zeros((1, 7), np.float32))

    with pytest.raises(ModelContractError, match="MultiActionDistribution"):
        make_by_hand(framework).kl(categorical)
