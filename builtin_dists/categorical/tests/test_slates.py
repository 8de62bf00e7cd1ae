"""A distribution over slates: ordered selections of items, with one logit per slate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog import SpaceInfo
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog_categorical.slates import Slates

pytestmark = pytest.mark.twins

#: The 12 slates of 2 distinct items out of 4, in the order of their logits.
ALL_SLATES = list(itertools.permutations(range(4), 2))
LOWEST = np.finfo(np.float32).min


def random_logits(rows=7, slates=12, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, slates)).astype(np.float32)


def make_slates(framework, logits, dtype=None, **options):
    """Create the distribution; without options, over slates of 2 out of 4 items."""
    options = options or {"nvec": (4, 4)}
    return framework.load("SlateMultiCategorical")(framework.tensor(logits, dtype), None, **options)


def exact_categorical(logits, is_allowed=True):
    """Return the distribution of torch.distributions in float64."""
    logits = np.where(is_allowed, np.asarray(logits, np.float64), -np.inf)
    return torch.distributions.Categorical(logits=torch.from_numpy(logits))


def logp_of_slate(framework, dist, slate):
    """Return the log probability of one slate in each row."""
    rows = dist.inputs.shape[0]
    return framework.numpy(dist.logp(framework.tensor(np.tile(slate, (rows, 1)))))


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_that_of_a_categorical_over_slates(framework):
    logits = random_logits(slates=12)
    dist = make_slates(framework, logits, nvec=(4, 4))

    # The slates of 2 out of 4 items are in lexicographic order.
    for index, slate in enumerate(itertools.permutations(range(4), 2)):
        logp = logp_of_slate(framework, dist, slate)  # RLlib returns ones here
        expected = exact_categorical(logits).logits[:, index]
        np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-6)


def test_probabilities_sum_to_one(framework):
    dist = make_slates(framework, random_logits(), nvec=(4, 4))

    pairs = itertools.product(range(4), repeat=2)
    total = sum(np.exp(logp_of_slate(framework, dist, pair)) for pair in pairs)

    np.testing.assert_allclose(total, 1, rtol=1e-5)


@pytest.mark.parametrize("slate", [(1, 1), (0, 4), (-1, 3), (4, 4), (0, -2)], ids=str)
def test_logp_of_unlisted_slate_is_lowest_number(framework, slate):
    dist = make_slates(framework, random_logits(), nvec=(4, 4))

    logp = logp_of_slate(framework, dist, slate)

    np.testing.assert_array_equal(logp, np.finfo(np.float32).min)


def test_logp_agrees_between_frameworks(torch_framework, tf_framework):
    torch_dist = make_slates(torch_framework, random_logits())
    tf_dist = make_slates(tf_framework, random_logits())

    for slate in ALL_SLATES:
        by_torch = logp_of_slate(torch_framework, torch_dist, slate)
        by_tf = logp_of_slate(tf_framework, tf_dist, slate)
        np.testing.assert_allclose(by_torch, by_tf, atol=1e-5)


def test_entropy_agrees_between_frameworks(torch_framework, tf_framework):
    by_torch = make_slates(torch_framework, random_logits()).entropy()
    by_tf = make_slates(tf_framework, random_logits()).entropy()

    np.testing.assert_allclose(by_torch, by_tf, atol=1e-5)


def test_entropy_matches_torch_distributions(framework):
    logits = random_logits()

    entropy = make_slates(framework, logits).entropy()

    np.testing.assert_allclose(
        framework.numpy(entropy), exact_categorical(logits).entropy(), rtol=1e-5
    )


def test_kl_matches_torch_distributions(framework):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kl = make_slates(framework, p).kl(make_slates(framework, q))

    expected = torch.distributions.kl_divergence(exact_categorical(p), exact_categorical(q))
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-5)


def test_kl_of_different_lists_is_an_error(framework):
    logits = random_logits()
    dist = make_slates(framework, logits, all_slates=ALL_SLATES)
    reordered = make_slates(framework, logits, all_slates=ALL_SLATES[::-1])

    with pytest.raises(ModelContractError, match="need the same list of slates"):
        dist.kl(reordered)


def test_temperature_divides_logits(framework):
    logits = random_logits()

    entropy = make_slates(framework, logits, nvec=(4, 4), temperature=2.0).entropy()

    expected = exact_categorical(logits.astype(np.float64) / 2).entropy()
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
def test_densities_have_one_number_per_row(framework, rows):
    dist = make_slates(framework, random_logits(rows))
    sample = dist.sample()

    for value in [
        dist.logp(sample),
        dist.entropy(),
        dist.kl(dist),
        dist.entropy_estimate(),
        dist.sampled_action_logp(),
    ]:
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_a_column_per_place(framework, method, rows):
    dist = make_slates(framework, random_logits(rows), nvec=(4, 4))

    sample = framework.numpy(getattr(dist, method)())

    assert sample.dtype == np.int64
    assert sample.shape == (rows, 2)
    np.testing.assert_array_equal(framework.numpy(dist.last_sample), sample)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("form", ["float array", "list", "float tensor"])
def test_stored_inputs_and_slates_give_the_same_logp(framework, rows, form):
    dist = make_slates(framework, random_logits(rows))
    slates = framework.numpy(dist.sample()).astype(np.float32)
    stored = {
        "float array": slates,
        "list": slates.tolist(),
        "float tensor": framework.tensor(slates),
    }

    restored = make_slates(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored[form])), framework.numpy(dist.sampled_action_logp())
    )


def test_inputs_without_one_logit_per_slate_are_an_error(framework):
    with pytest.raises(ModelContractError, match=r"requires inputs \[B, 3\]") as caught:
        make_slates(framework, random_logits(rows=7, slates=12), all_slates=[[0], [1], [2]])

    assert str(caught.value).startswith("SlateMultiCategorical over 3 slates ")
    assert str(caught.value).endswith("found (7, 12).")


# --- samples --------------------------------------------------------------------------------------


def test_samples_follow_the_probabilities(framework):
    framework.seed(0)
    draws = 20_000
    logits = random_logits(rows=1)

    samples = framework.numpy(
        make_slates(framework, np.tile(logits, (draws, 1)), nvec=(4, 4)).sample()
    )

    counts = np.array([(samples == slate).all(axis=1).sum() for slate in ALL_SLATES])
    probabilities = exact_categorical(logits).probs[0].numpy()
    assert counts.sum() == draws  # all samples are slates of distinct items
    assert stats.chisquare(counts, draws * probabilities).pvalue > 1e-3
    # The test can tell: the probabilities in another order do not fit.
    assert stats.chisquare(counts, draws * probabilities[::-1]).pvalue < 1e-3


def test_deterministic_sample_is_most_likely_slate(framework):
    logits = random_logits()

    slates = make_slates(framework, logits).deterministic_sample()

    expected = np.array(ALL_SLATES)[logits.argmax(axis=1)]
    np.testing.assert_array_equal(framework.numpy(slates), expected)


def test_logp_of_sample_changed_in_place_is_of_new_values():
    from rlcatalog_categorical.torch import SlateMultiCategorical

    logits = random_logits()
    dist = SlateMultiCategorical(torch.from_numpy(logits), nvec=(4, 4))

    sample = dist.sample()
    sample[:] = torch.tensor(ALL_SLATES[5])

    expected = exact_categorical(logits).logits[:, 5]
    np.testing.assert_allclose(dist.logp(sample), expected, rtol=1e-5)


# --- masks ----------------------------------------------------------------------------------------

#: Columns of items 0 to 3 in the first place, then in the second: item 2 is nowhere allowed, and
#: item 0 not in the first place.
MASK = np.array([[0, 1, 0, 1, 1, 1, 0, 1]] * 7, bool)
ALLOWED_SLATES = [(1, 0), (1, 3), (3, 0), (3, 1)]
IS_ALLOWED = [slate in ALLOWED_SLATES for slate in ALL_SLATES]


def mask_logits(framework, logits, mask):
    cls = framework.load("SlateMultiCategorical")
    return cls.masked(framework.tensor(logits), framework.tensor(mask), nvec=(4, 4))


def make_masked(framework, logits):
    """Create a distribution over the slates that contain no forbidden item."""
    return framework.load("SlateMultiCategorical")(
        mask_logits(framework, logits, MASK), None, nvec=(4, 4)
    )


@pytest.mark.parametrize("slate", ALL_SLATES, ids=str)
def test_masked_logp_is_that_of_allowed_slates(framework, slate):
    logits = random_logits()

    logp = logp_of_slate(framework, make_masked(framework, logits), slate)

    if slate in ALLOWED_SLATES:
        expected = exact_categorical(logits, IS_ALLOWED).logits[:, ALL_SLATES.index(slate)]
        np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-6)
    else:
        assert (logp < -1e38).all()


def test_masked_entropy_is_that_of_allowed_slates(framework):
    logits = random_logits()

    entropy = make_masked(framework, logits).entropy()

    expected = exact_categorical(logits, IS_ALLOWED).entropy()
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-5)


def test_masked_kl_is_that_of_allowed_slates(framework):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kl = make_masked(framework, p).kl(make_masked(framework, q))

    expected = torch.distributions.kl_divergence(
        exact_categorical(p, IS_ALLOWED), exact_categorical(q, IS_ALLOWED)
    )
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-5)


def test_masked_slates_are_not_drawn_in_a_million_draws(framework):
    framework.seed(1)
    inputs = framework.numpy(mask_logits(framework, random_logits(rows=7), MASK))
    many_inputs = np.tile(inputs, (10**6 // 7 // 2, 1))  # seven rows, two items each

    slates = framework.numpy(make_slates(framework, many_inputs, nvec=(4, 4)).sample())

    drawn_codes = set(slates @ [4, 1])  # 4 · first item + second item
    assert drawn_codes == {4 * first + second for first, second in ALLOWED_SLATES}


def test_mask_of_wrong_width_is_an_error(framework):
    with pytest.raises(ActionMaskError, match="one column per item and place") as caught:
        mask_logits(framework, random_logits(), np.ones((7, 12), bool))

    assert str(caught.value).endswith("expected 8 columns, found 12.")


# --- lists of slates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert", [np.array, list, Slates, np.uint8], ids=["array", "list", "Slates", "uint8"]
)
def test_all_slates_replaces_the_list(framework, convert):
    slates = [[3, 0], [1, 1], [0, 2]]  # in no order, with an item twice
    logits = random_logits(slates=3)

    dist = make_slates(framework, logits, all_slates=convert(slates))

    for index, slate in enumerate(slates):
        expected = exact_categorical(logits).logits[:, index]
        np.testing.assert_allclose(
            logp_of_slate(framework, dist, slate), expected, rtol=1e-5, atol=1e-6
        )
    np.testing.assert_array_equal(logp_of_slate(framework, dist, [0, 3]), LOWEST)
    assert all(sample in slates for sample in framework.numpy(dist.sample()).tolist())


def test_mask_forbids_slates_of_the_given_list(framework):
    slates = [[3, 0], [1, 1], [0, 2]]
    logits = random_logits(rows=7, slates=3)
    mask = np.array([[1, 1, 1, 0, 1, 1, 1, 1]])  # forbids item 3 in the first place

    masked = framework.load("SlateMultiCategorical").masked(
        framework.tensor(logits), framework.tensor(mask), all_slates=slates
    )

    np.testing.assert_array_equal(framework.numpy(masked)[:, 0], LOWEST)
    np.testing.assert_array_equal(framework.numpy(masked)[:, 1:], logits[:, 1:])


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
        (np.zeros((1, 63), np.int64), "slates of 63 out of 2 items cannot be numbered"),
        ([[2]], "slates of 1 out of 2 items cannot be numbered"),
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
        (spaces.MultiDiscrete([2, 2, 2]), "there are 0 slates of 3 distinct items out of 2"),
        (spaces.MultiDiscrete([10] * 5), "there are 30,240 slates .* supports 1 to 10,000. Use a"),
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

    with pytest.raises(UnsupportedSpaceError, match="Use a shorter slate, or 'multi_categorical'"):
        framework.load("SlateMultiCategorical").required_model_output_shape(space, {})


# --- extreme inputs, gradients, tracing -----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_extreme_logits_give_finite_numbers(framework, dtype):
    extremes = [0.0, 1.0, -1.0, 1e8, -1e8, 1.1e34, -1.1e34]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    logits = np.array(list(itertools.product(extremes, repeat=3)))
    slates = [[0, 1], [1, 0], [2, 2]]

    dist = make_slates(framework, logits, dtype, all_slates=slates)
    other = make_slates(framework, logits[::-1].copy(), dtype, all_slates=slates)

    assert np.isfinite(framework.numpy(dist.logp(dist.sample()))).all()
    assert np.isfinite(logp_of_slate(framework, dist, [0, 0])).all()  # in no list
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(other))).all()


def logp_of_two_slates(dist):
    return dist.logp(np.array([[1, 0], [2, 1]]))


def entropy(dist):
    return dist.entropy()


@pytest.mark.parametrize("quantity", [logp_of_two_slates, entropy])
def test_gradient_matches_finite_differences(framework, quantity):
    cls = framework.load("SlateMultiCategorical")
    logits = random_logits(rows=2).astype(np.float64)

    def compute(inputs):
        return quantity(cls(inputs, None, nvec=(4, 4)))

    np.testing.assert_allclose(
        framework.gradient(compute, at=logits),
        framework.numeric_gradient(compute, at=logits),
        atol=1e-7,
    )


def test_constants_cached_in_inference_mode_serve_in_training():
    from rlcatalog_categorical.torch import SlateMultiCategorical

    nvec = (6, 6)  # used by no other test, so that nothing is cached yet; 6 · 5 slates
    with torch.inference_mode():
        SlateMultiCategorical(torch.zeros(1, 30), nvec=nvec).sample()

    inputs = torch.zeros(1, 30, requires_grad=True)
    SlateMultiCategorical(inputs, nvec=nvec).logp([[0, 1]]).sum().backward()

    # The first slate's logit has the gradient 1 - probability.
    np.testing.assert_allclose(inputs.grad[0, 0], 1 - 1 / 30, rtol=1e-5)


def test_tf_function_takes_any_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import SlateMultiCategorical

    @tf.function(input_signature=[tf.TensorSpec([None, 12], tf.float32)])
    def sample_and_score(inputs):
        dist = SlateMultiCategorical(inputs, nvec=(4, 4))
        first = dist.sample()
        second = dist.sample()
        return first, second, dist.logp(first), dist.kl(dist)

    first, second, logp, kl = sample_and_score(tf.zeros([100, 12]))

    assert (first.numpy() != second.numpy()).any()
    np.testing.assert_allclose(logp, np.log(1 / 12), rtol=1e-5)  # twelve equal logits
    np.testing.assert_array_equal(kl, 0)
