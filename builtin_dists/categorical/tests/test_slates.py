"""A distribution over slates: ordered selections of items, with one logit per slate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog import SpaceInfo
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog_categorical.slates import Slates

pytestmark = pytest.mark.twins

#: The slates of 2 distinct items out of 3, in the order of their logits.
SIX_SLATES = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
LOWEST_FLOAT32 = np.finfo(np.float32).min


def random_logits(rows=7, slates=6, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, slates)).astype(np.float32)


def make_slates(framework, logits, dtype="float32", **options):
    return framework.load("SlateMultiCategorical")(framework.tensor(logits, dtype), **options)


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_that_of_a_categorical_over_slates(framework):
    logits = random_logits(rows=6, slates=6)

    # One slate per row; RLlib returns ones here.
    logp = make_slates(framework, logits, nvec=(3, 3)).logp(framework.tensor(SIX_SLATES))

    exact = torch.distributions.Categorical(logits=torch.tensor(logits))
    np.testing.assert_allclose(logp, exact.log_prob(torch.arange(6)), rtol=1e-5)


@pytest.mark.parametrize("slate", [(1, 1), (0, 3), (-1, 2), (3, 3), (0, -2)], ids=str)
def test_logp_of_unlisted_slate_is_lowest_number(framework, slate):
    # Slates of 2 distinct items out of 0, 1 and 2.
    dist = make_slates(framework, np.zeros((1, 6)), nvec=(3, 3))

    np.testing.assert_array_equal(dist.logp([slate]), [LOWEST_FLOAT32])


def test_entropy_is_that_of_a_categorical(framework):
    logits = random_logits()

    entropy = make_slates(framework, logits, nvec=(3, 3)).entropy()

    exact = torch.distributions.Categorical(logits=torch.tensor(logits))
    np.testing.assert_allclose(entropy, exact.entropy(), rtol=1e-5)


def test_kl_is_that_of_a_categorical(framework):
    p_logits = random_logits(seed=0)
    q_logits = random_logits(seed=1)
    p = make_slates(framework, p_logits, nvec=(3, 3))
    q = make_slates(framework, q_logits, nvec=(3, 3))

    exact_p = torch.distributions.Categorical(logits=torch.tensor(p_logits))
    exact_q = torch.distributions.Categorical(logits=torch.tensor(q_logits))
    expected = torch.distributions.kl_divergence(exact_p, exact_q)
    np.testing.assert_allclose(p.kl(q), expected, rtol=1e-4)


def test_kl_of_different_lists_is_an_error(framework):
    dist = make_slates(framework, np.zeros((1, 2)), all_slates=[[0, 1], [1, 0]])
    reordered = make_slates(framework, np.zeros((1, 2)), all_slates=[[1, 0], [0, 1]])

    with pytest.raises(ModelContractError, match="need the same list of slates"):
        dist.kl(reordered)


def test_temperature_divides_logits(framework):
    # softmax of [0, log 3] is [1/4, 3/4]
    logits = [[0, 2 * np.log(3)]]

    dist = make_slates(framework, logits, all_slates=[[0, 1], [1, 0]], temperature=2.0)

    np.testing.assert_allclose(dist.logp([[1, 0]]), [np.log(3 / 4)], rtol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_a_column_per_place(framework, method):
    dist = make_slates(framework, random_logits(rows=7), nvec=(3, 3))

    sample = getattr(dist, method)()

    assert tuple(sample.shape) == (7, 2)
    assert framework.numpy(sample).dtype == np.int64


@pytest.mark.parametrize(
    "slates",
    [[[0, 1], [2, 1]], np.array([[0, 1], [2, 1]], np.float32)],
    ids=["list", "float array"],
)
def test_logp_takes_slates_in_any_form(framework, slates):
    dist = make_slates(framework, np.zeros((2, 6)), nvec=(3, 3))

    # Six equal logits.
    np.testing.assert_allclose(dist.logp(slates), [np.log(1 / 6), np.log(1 / 6)], rtol=1e-5)


def test_inputs_without_one_logit_per_slate_are_an_error(framework):
    with pytest.raises(ModelContractError, match=r"requires inputs \[B, 3\]") as caught:
        make_slates(framework, random_logits(rows=7, slates=12), all_slates=[[0], [1], [2]])

    assert str(caught.value).startswith("SlateMultiCategorical over 3 slates ")
    assert str(caught.value).endswith("found (7, 12).")


# --- samples --------------------------------------------------------------------------------------


def test_samples_follow_the_probabilities(framework):
    framework.seed(0)
    logits = [0, 1, -1, 0.5, 0, -0.5]  # of (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)
    dist = make_slates(framework, np.tile(logits, (20_000, 1)), nvec=(3, 3))

    samples = framework.numpy(dist.sample())

    counts = np.array([(samples == slate).all(axis=1).sum() for slate in SIX_SLATES])
    expected_counts = 20_000 * special.softmax(logits)
    assert counts.sum() == 20_000  # all samples are slates of distinct items
    assert stats.chisquare(counts, expected_counts).pvalue > 1e-3
    # The test can tell: the probabilities in another order do not fit.
    assert stats.chisquare(counts, expected_counts[::-1]).pvalue < 1e-3


def test_deterministic_sample_is_most_likely_slate(framework):
    # The slates are (0, 1), (0, 2), (1, 0), (1, 2), (2, 0) and (2, 1).
    dist = make_slates(framework, [[0, 0, 0, 9, 0, 0], [9, 0, 0, 0, 0, 0]], nvec=(3, 3))

    np.testing.assert_array_equal(dist.deterministic_sample(), [(1, 2), (0, 1)])


def test_logp_of_sample_changed_in_place_is_of_new_values():
    from rlcatalog_categorical.torch import SlateMultiCategorical

    # softmax of [0, log 3] is [1/4, 3/4]
    logits = torch.tensor([[0, np.log(3)]])
    dist = SlateMultiCategorical(logits, all_slates=[[0, 1], [1, 0]])

    sample = dist.sample()
    sample[:] = torch.tensor([0, 1])

    np.testing.assert_allclose(dist.logp(sample), [np.log(1 / 4)], rtol=1e-5)


# --- masks ----------------------------------------------------------------------------------------

#: Columns of items 0 to 2 in the first place, then in the second: item 0 must not be in the first
#: place, and item 2 not in the second. That leaves (1, 0), (2, 0) and (2, 1).
MASK = np.array([[0, 1, 1, 1, 1, 0]], bool)


def make_masked(framework, logits, mask):
    """Create the distribution over slates of 2 out of 3 items, some of which are forbidden."""
    cls = framework.load("SlateMultiCategorical")
    inputs = cls.masked(framework.tensor(logits, "float32"), framework.tensor(mask), nvec=(3, 3))
    return cls(inputs, nvec=(3, 3))


@pytest.mark.parametrize("slate", SIX_SLATES, ids=str)
def test_masked_logp_is_that_of_allowed_slates(framework, slate):
    dist = make_masked(framework, np.zeros((1, 6)), MASK)

    logp = dist.logp([slate])

    if slate in [(1, 0), (2, 0), (2, 1)]:
        np.testing.assert_allclose(logp, [np.log(1 / 3)], rtol=1e-5)
    else:
        np.testing.assert_array_equal(logp, [LOWEST_FLOAT32])


def test_masked_entropy_is_that_of_allowed_slates(framework):
    entropy = make_masked(framework, np.zeros((1, 6)), MASK).entropy()

    np.testing.assert_allclose(entropy, [np.log(3)], rtol=1e-5)


def test_masked_slates_are_not_drawn_in_a_million_draws(framework):
    framework.seed(1)
    # The forbidden slates (0, 1), (0, 2) and (1, 2) would be very likely.
    logits = np.tile([50, 50, 0, 50, 0, 0], (10**6 // 2, 1))
    mask = np.tile(MASK, (len(logits), 1))

    slates = framework.numpy(make_masked(framework, logits, mask).sample())

    assert set(map(tuple, slates.tolist())) == {(1, 0), (2, 0), (2, 1)}


def test_mask_of_wrong_width_is_an_error(framework):
    with pytest.raises(ActionMaskError, match="one column per item and place") as caught:
        make_masked(framework, np.zeros((1, 6)), np.ones((1, 9), bool))

    assert str(caught.value).endswith("expected 6 columns, found 9.")


# --- lists of slates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert", [np.array, list, Slates, np.uint8], ids=["array", "list", "Slates", "uint8"]
)
def test_all_slates_replaces_the_list(framework, convert):
    slates = [[3, 0], [1, 1], [0, 2]]  # in no order, with an item twice
    probabilities = [0.5, 0.2, 0.3]

    dist = make_slates(framework, np.log([probabilities]), all_slates=convert(slates))

    for slate, probability in zip(slates, probabilities, strict=True):
        np.testing.assert_allclose(dist.logp([slate]), [np.log(probability)], rtol=1e-5)
    np.testing.assert_array_equal(dist.logp([[0, 3]]), [LOWEST_FLOAT32])
    assert framework.numpy(dist.sample()).tolist()[0] in slates


def test_mask_forbids_slates_of_the_given_list(framework):
    slates = [[3, 0], [1, 1], [0, 2]]
    # Four items in two places; item 3 is forbidden in the first place.
    mask = np.array([[1, 1, 1, 0, 1, 1, 1, 1]])

    masked = framework.load("SlateMultiCategorical").masked(
        framework.tensor([[0.5, 1.5, 2.5]], "float32"), framework.tensor(mask), all_slates=slates
    )

    np.testing.assert_array_equal(masked, [[LOWEST_FLOAT32, 1.5, 2.5]])


@pytest.mark.parametrize(
    ("all_slates", "message"),
    [
        ([0, 1], r"found shape \(2,\)"),
        ([[]], "found shape"),
        ([[0.5, 1]], "float64"),
        ([[0, -1]], "integers >= 0"),
        ([[0, 1], [0, 1]], "contains a slate twice"),
        ([[9] * 30], "cannot be numbered"),
    ],
    ids=["rank 1", "empty", "floats", "negative item", "duplicate", "too many places"],
)
def test_wrong_list_of_slates_is_an_error(framework, all_slates, message):
    with pytest.raises(ConfigError, match=message):
        make_slates(framework, random_logits(), all_slates=all_slates)


def test_slates_need_a_list_or_a_space(framework):
    with pytest.raises(ConfigError, match="needs all_slates, nvec or action_space"):
        make_slates(framework, random_logits(), temperature=1.0)


def test_slate_codes_are_numbers_in_base_of_items():
    # Two items in 62 places.
    first_slate = np.zeros((1, 62), np.int64)
    second_slate = np.zeros((1, 62), np.int64)
    second_slate[0, -1] = 1
    last_slate = np.ones((1, 62), np.int64)

    slates = Slates(np.concatenate([last_slate, first_slate, second_slate]), items=2)

    assert slates.codes.tolist() == [0, 1, 2**62 - 1]  # sorted


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((1, 63), np.int64), "slates of 63 out of 2 items cannot"),
        ([[2]], "slates of 1 out of 2 items cannot"),
    ],
    ids=["above int64", "item 2 of 0 and 1"],
)
def test_slate_codes_beyond_int64_or_items_are_an_error(table, message):
    with pytest.raises(ConfigError, match=message):
        Slates(table, items=2)


# --- spaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nvec", "count"), [([4, 4], 12), ([5], 5), ([3, 3, 3], 6), ([[3, 3]], 6)], ids=str
)
def test_output_shape_is_number_of_slates(framework, nvec, count):
    space = spaces.MultiDiscrete(np.array(nvec))

    dist = make_slates(framework, np.zeros((1, count), np.float32), action_space=space)

    assert framework.load("SlateMultiCategorical").required_model_output_shape(space, {}) == count
    assert len(dist.slates.table) == count


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.MultiDiscrete([3, 4]), "equal entries"),
        (spaces.Discrete(3), "needs a MultiDiscrete space"),
        (spaces.MultiDiscrete([2, 2, 2]), "there are 0 slates of 3 distinct items"),
        (spaces.MultiDiscrete([10] * 5), "30,240 slates .* supports 1 to 10,000"),
    ],
    ids=["unequal", "Discrete", "no slates", "too many slates"],
)
def test_unsuitable_space_is_an_error(framework, space, message):
    cls = framework.load("SlateMultiCategorical")

    with pytest.raises(UnsupportedSpaceError, match=message):
        cls.required_model_output_shape(space, {})
    with pytest.raises(UnsupportedSpaceError, match=message):
        cls.options_for(SpaceInfo.read(space, "action"), {})


def test_too_many_slates_error_suggests_alternatives(framework):
    space = spaces.MultiDiscrete([10] * 5)

    with pytest.raises(UnsupportedSpaceError, match="Use a shorter slate"):
        framework.load("SlateMultiCategorical").required_model_output_shape(space, {})


# --- constants, tracing ---------------------------------------------------------------------------


def test_constants_cached_in_inference_mode_serve_in_training():
    from rlcatalog_categorical.torch import SlateMultiCategorical

    # No other test has two of six items, so that nothing is cached yet. The slates are 6 · 5 = 30.
    with torch.inference_mode():
        SlateMultiCategorical(torch.zeros(1, 30), nvec=(6, 6)).sample()

    inputs = torch.zeros(1, 30, requires_grad=True)
    SlateMultiCategorical(inputs, nvec=(6, 6)).logp([[0, 1]]).sum().backward()

    assert inputs.grad is not None


def test_tf_function_traces_without_a_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import SlateMultiCategorical

    @tf.function(input_signature=[tf.TensorSpec([None, 12], tf.float32)])
    def sample_and_score(inputs):
        dist = SlateMultiCategorical(inputs, nvec=(4, 4))
        first = dist.sample()
        second = dist.sample()
        return first, second, dist.logp(first)

    first, second, logp = sample_and_score(tf.zeros([100, 12]))

    assert (first.numpy() != second.numpy()).any()  # each call of sample draws anew
    np.testing.assert_allclose(logp, np.log(1 / 12), rtol=1e-5)  # 4 · 3 slates, equal logits
