"""Several independent choices: densities, samples, masks, gradients, and sizes for spaces."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog import SpaceInfo
from rlcatalog.errors import CatalogError, ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog_categorical.plugin import input_lens

pytestmark = pytest.mark.twins

#: Numbers of values of three choices; nine logits in both.
each_lens = pytest.mark.parametrize("lens", [(3, 2, 4), (3, 3, 3)], ids=["ragged", "equal"])
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCES)


def random_logits(rows=7, columns=9, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, columns)).astype(np.float32)


def make_multi(framework, logits, lens=(3, 2, 4), dtype="float32", **options):
    inputs = framework.tensor(logits, dtype)
    return framework.load("MultiCategorical")(inputs, input_lens=lens, **options)


def make_masked(framework, logits, mask, lens=(3, 2, 4), dtype="float32"):
    cls = framework.load("MultiCategorical")
    inputs = cls.masked(framework.tensor(logits, dtype), framework.tensor(mask), input_lens=lens)
    return cls(inputs, input_lens=lens)


def exact_choices(logits, lens, mask=True):
    """Return each choice as a distribution of torch.distributions in float64."""
    logits = np.where(mask, np.asarray(logits, np.float64), -np.inf)
    columns = np.split(logits, np.cumsum(lens)[:-1], axis=1)
    return [torch.distributions.Categorical(logits=torch.from_numpy(part)) for part in columns]


# --- densities ------------------------------------------------------------------------------------


@each_lens
def test_logp_is_sum_of_choices_log_probabilities(framework, lens):
    all_actions = np.array(list(itertools.product(*map(range, lens))))  # one per row
    logits = random_logits(rows=len(all_actions), columns=9)  # the sum of lens

    logp = make_multi(framework, logits, lens).logp(framework.tensor(all_actions))

    first, second, third = exact_choices(logits, lens)
    actions = torch.from_numpy(all_actions)
    expected = (
        first.log_prob(actions[:, 0])
        + second.log_prob(actions[:, 1])
        + third.log_prob(actions[:, 2])
    )
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-5)


@each_lens
def test_multi_entropy_is_entropy_of_each_choice(framework, lens):
    logits = random_logits()

    dist = make_multi(framework, logits, lens)

    entropies = [choice.entropy() for choice in exact_choices(logits, lens)]
    np.testing.assert_allclose(dist.multi_entropy(), np.stack(entropies, axis=1), rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(), sum(entropies), rtol=1e-5)


@each_lens
def test_multi_kl_is_kl_of_each_choice(framework, lens):
    p_logits = random_logits(seed=0)
    q_logits = random_logits(seed=1)

    p = make_multi(framework, p_logits, lens)
    q = make_multi(framework, q_logits, lens)

    choices = zip(exact_choices(p_logits, lens), exact_choices(q_logits, lens), strict=True)
    kls = [torch.distributions.kl_divergence(choice_p, choice_q) for choice_p, choice_q in choices]
    np.testing.assert_allclose(p.multi_kl(q), np.stack(kls, axis=1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(p.kl(q), sum(kls), rtol=1e-5)


def test_kl_of_different_lengths_is_an_error(framework):
    p = make_multi(framework, random_logits(columns=9), lens=(3, 2, 4))
    q = make_multi(framework, random_logits(columns=9), lens=(3, 3, 3))

    with pytest.raises(ModelContractError, match="input_lens differ"):
        p.kl(q)


def test_kl_with_bernoulli_is_an_error(framework):
    logits = random_logits()

    with pytest.raises(ModelContractError, match="expects another MultiCategorical"):
        make_multi(framework, logits).kl(framework.load("Bernoulli")(framework.tensor(logits)))


# --- shapes and types -----------------------------------------------------------------------------


@each_lens
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_a_column_per_choice(framework, method, lens):
    sample = getattr(make_multi(framework, random_logits(rows=7), lens), method)()

    assert tuple(sample.shape) == (7, 3)
    assert framework.numpy(sample).dtype == np.int64


@pytest.mark.parametrize(
    "convert",
    [
        lambda framework, actions: actions,
        lambda framework, actions: actions.astype(np.float32),
        lambda framework, actions: actions.astype(np.uint8),
        lambda framework, actions: actions.tolist(),
        lambda framework, actions: actions.reshape(7, 2, 2),
        lambda framework, actions: framework.tensor(actions, "bfloat16"),
        lambda framework, actions: [framework.tensor(column) for column in actions.T],
        lambda framework, actions: [column[:, None] for column in actions.T],
    ],
    ids=[
        "int64",
        "float32",
        "uint8",
        "list of rows",
        "2 x 2 choices",
        "bfloat16 tensor",
        "list of tensors",
        "list of columns",
    ],
)
def test_logp_takes_actions_in_any_form(framework, convert):
    dist = make_multi(framework, random_logits(rows=7, columns=12), lens=(2, 4, 3, 3))
    actions = np.random.default_rng(0).integers(0, 2, (7, 4))

    logp = dist.logp(convert(framework, actions))

    np.testing.assert_array_equal(logp, dist.logp(framework.tensor(actions)))


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_logp_reads_list_of_tensors_as_choices(framework, rows):
    # There are three choices: three rows must not be mistaken for them.
    dist = make_multi(framework, random_logits(rows), lens=(3, 2, 4))
    actions = np.tile([2, 1, 3], (rows, 1))

    by_list = dist.logp([framework.tensor(column) for column in actions.T])

    np.testing.assert_array_equal(by_list, dist.logp(framework.tensor(actions)))


def test_logp_of_single_choice_takes_list_of_one_tensor(framework):
    # softmax of [0, log 3] is [1/4, 3/4]
    dist = make_multi(framework, [[0, np.log(3)], [0, np.log(3)]], lens=(2,))

    logp = dist.logp([framework.tensor([0, 1])])

    np.testing.assert_allclose(logp, [np.log(1 / 4), np.log(3 / 4)], rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 7), (7, 2), (3,), (7, 4)])
def test_logp_of_actions_with_wrong_shape_is_an_error(framework, shape):
    dist = make_multi(framework, random_logits(rows=7), lens=(3, 2, 4))

    with pytest.raises(ModelContractError, match=r"actions \[7, 3\], or a list of 3"):
        dist.logp(framework.tensor(np.zeros(shape)))


def test_inputs_may_be_an_array(framework):
    inputs = np.array([[0, 1, 2, 1, 0]], np.float32)

    dist = framework.load("MultiCategorical")(inputs, input_lens=(2, 3))

    # The largest of [0, 1] is at 1, that of [2, 1, 0] at 0.
    np.testing.assert_array_equal(dist.deterministic_sample(), [[1, 0]])


def test_inputs_are_not_changed(framework):
    inputs = framework.tensor(np.arange(9, dtype=np.float32)[None])

    dist = framework.load("MultiCategorical")(inputs, input_lens=(3, 2, 4))
    dist.sample()
    dist.entropy()
    dist.kl(dist)

    np.testing.assert_array_equal(inputs, [[0, 1, 2, 3, 4, 5, 6, 7, 8]])
    assert dist.inputs is inputs


@pytest.mark.parametrize("lens", [(2, 3), (1, 4)])
@pytest.mark.parametrize(
    "shape", [(4, 5, 1), (5,), (4, 6), (4, 1, 5)], ids=["rank 3", "rank 1", "wide", "middle axis"]
)
def test_inputs_of_wrong_shape_are_an_error(framework, lens, shape):
    with pytest.raises(ModelContractError, match=r"requires inputs \[B, 5\], found \("):
        make_multi(framework, np.zeros(shape), lens)


@pytest.mark.parametrize(
    "lens",
    [[3, 2, 4], np.array([3, 2, 4]), tuple(np.array([3, 2, 4]))],
    ids=["list", "array", "tuple of int64"],
)
def test_input_lens_take_any_form(framework, lens):
    dist = make_multi(framework, random_logits(), lens)

    assert dist.input_lens == (3, 2, 4)


def test_input_lens_default_to_those_of_the_action_space(framework):
    space = spaces.MultiDiscrete([3, 2, 4], start=[5, 0, -3])

    dist = make_multi(framework, random_logits(), lens=None, action_space=space)

    assert dist.input_lens == (3, 2, 4)


def test_input_lens_or_action_space_is_required(framework):
    with pytest.raises(ConfigError, match="needs input_lens") as caught:
        make_multi(framework, random_logits(), lens=None)

    assert str(caught.value).endswith("(the number of values of each choice) or action_space.")


def test_input_lens_below_1_are_an_error(framework):
    with pytest.raises(ConfigError, match=r"each at least 1; found \(9, 0\)"):
        make_multi(framework, random_logits(columns=9), lens=(9, 0))


def test_parts_have_the_size_of_each_choice(framework):
    space = SpaceInfo.read(spaces.MultiDiscrete([2, 5, 3]), "action")

    parts = framework.load("MultiCategorical").parts(space, 10, {"input_lens": (2, 5, 3)})

    assert [part_space.n for part_space, _, _ in parts] == [2, 5, 3]
    assert [size for _, _, size in parts] == [2, 5, 3]


# --- samples --------------------------------------------------------------------------------------


def test_samples_of_each_choice_follow_its_probabilities(framework):
    framework.seed(2)
    # A choice of three, and one of two.
    dist = make_multi(framework, np.tile([0, 1, -1, 0.5, 0], (20_000, 1)), lens=(3, 2))

    first, second = framework.numpy(dist.sample()).T

    first_counts = 20_000 * special.softmax([0, 1, -1])
    second_counts = 20_000 * special.softmax([0.5, 0])
    assert stats.chisquare(np.bincount(first), first_counts).pvalue > 1e-3
    assert stats.chisquare(np.bincount(second), second_counts).pvalue > 1e-3
    # The test can tell: a slightly larger logit does not fit.
    wrong_counts = 20_000 * special.softmax([0.6, 0])
    assert stats.chisquare(np.bincount(second), wrong_counts).pvalue < 1e-3


@each_lens
def test_samples_of_choices_are_independent(framework, lens):
    framework.seed(2)
    dist = make_multi(framework, np.zeros((20_000, 9)), lens)

    samples = framework.numpy(dist.sample())

    # Numbers of all samples from 0; with equal logits, each is as likely as any other.
    numbers = np.ravel_multi_index(samples.T, lens)
    counts = np.bincount(numbers, minlength=np.prod(lens))
    assert stats.chisquare(counts).pvalue > 1e-3


# --- masks ----------------------------------------------------------------------------------------

#: Allowed values in two rows; each choice has at least one, whether its lens are (3, 2, 4) or
#: (3, 3, 3).
MASK = np.array([[0, 1, 1, 1, 0, 0, 1, 0, 1], [1, 1, 0, 0, 1, 1, 1, 1, 0]], bool)


@each_lens
@each_dtype
def test_masked_entropy_is_that_of_allowed_values(framework, lens, dtype):
    logits = random_logits(rows=2)

    entropy = make_masked(framework, logits, MASK, lens, dtype).entropy()

    rounded = framework.numpy(framework.tensor(logits, dtype))  # the logits as the dtype holds them
    expected = sum(choice.entropy() for choice in exact_choices(rounded, lens, MASK))
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=tolerance, atol=tolerance)


@each_lens
def test_masked_kl_is_that_of_allowed_values(framework, lens):
    p = random_logits(rows=2, seed=0)
    q = random_logits(rows=2, seed=1)

    kl = make_masked(framework, p, MASK, lens).kl(make_masked(framework, q, MASK, lens))

    choices = zip(exact_choices(p, lens, MASK), exact_choices(q, lens, MASK), strict=True)
    expected = sum(
        torch.distributions.kl_divergence(choice_p, choice_q) for choice_p, choice_q in choices
    )
    np.testing.assert_allclose(kl, expected, rtol=1e-5, atol=1e-5)


@each_dtype
def test_masked_logp_is_normalised_over_allowed_values(framework, dtype):
    # Choices of three and of two values; the first value of each is forbidden.
    mask = np.array([[False, True, True, False, True]])
    dist = make_masked(framework, np.zeros((1, 5)), mask, lens=(3, 2), dtype=dtype)

    logp = framework.numpy(dist.logp([[1, 1]]))
    logp_of_forbidden = framework.numpy(dist.logp([[0, 0]]))

    # The first choice is between two values, the second has one.
    np.testing.assert_allclose(logp, [np.log(1 / 2)], rtol=TOLERANCES[dtype])
    assert np.isfinite(logp_of_forbidden).all()
    assert (logp_of_forbidden < -6e4).all()  # float16 ends at -65504


@each_lens
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_values_are_not_drawn_in_a_million_draws(framework, lens, dtype):
    framework.seed(0)
    # The forbidden values would be very likely.
    rows = 10**6 // 3 + 1  # of three choices
    logits = np.tile(np.where(MASK[0], 0, 50), (rows, 1))
    mask = np.tile(MASK[0], (rows, 1))

    samples = framework.numpy(make_masked(framework, logits, mask, lens, dtype).sample())

    first_columns = np.cumsum(lens) - lens  # of each choice among the nine logits
    columns_of_samples = first_columns + samples
    assert (samples < lens).all()
    assert MASK[0][columns_of_samples].all()


def test_samples_are_in_range_even_if_mask_allows_nothing(framework):
    logits = np.zeros((2000, 9))
    nothing = np.zeros((2000, 9), bool)

    dist = make_masked(framework, logits, nothing, lens=(3, 2, 4))

    # Inside, choices of three and two are padded to four values, which must not be drawn.
    assert (framework.numpy(dist.sample()) < [3, 2, 4]).all()
    assert (framework.numpy(dist.deterministic_sample()) < [3, 2, 4]).all()
    assert framework.all_finite(dist.sampled_action_logp())
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))


@each_lens
@pytest.mark.parametrize("quantity", ["logp", "entropy", "kl"])
def test_masked_gradient_is_zero_for_forbidden_values(framework, lens, quantity):
    cls = framework.load("MultiCategorical")

    def compute(logits):
        dist = cls(cls.masked(logits, framework.tensor(MASK)), input_lens=lens)
        if quantity == "logp":
            return dist.logp([[1, 0, 2], [2, 1, 0]])
        if quantity == "entropy":
            return dist.entropy()
        return dist.kl(make_multi(framework, np.zeros((2, 9)), lens))

    gradient = framework.gradient(compute, at=random_logits(rows=2))

    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~MASK], 0)


# --- extreme inputs -------------------------------------------------------------------------------


def extreme_logits(dtype):
    """Return logits of 2, 1 and 4 values; the very last value has the logit -inf."""
    extremes = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1e-6]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    triples = np.array(list(itertools.product(extremes, repeat=3)))
    return np.concatenate([triples, triples[::-1], np.full((len(triples), 1), -np.inf)], axis=1)


@each_dtype
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_of_extreme_logits_are_possible(framework, dtype, method):
    dist = make_multi(framework, extreme_logits(dtype), lens=(2, 1, 4), dtype=dtype)

    sample = getattr(dist, method)()

    # The last of the 2 + 1 + 4 logits is -inf.
    assert (framework.numpy(sample) < [2, 1, 3]).all()
    assert framework.all_finite(dist.logp(sample))


@each_dtype
def test_densities_of_extreme_logits_are_finite(framework, dtype):
    logits = extreme_logits(dtype)
    dist = make_multi(framework, logits, lens=(2, 1, 4), dtype=dtype)
    reversed_dist = make_multi(framework, logits[::-1].copy(), lens=(2, 1, 4), dtype=dtype)
    impossible_action = np.tile([0, 0, 3], (len(logits), 1))  # its last logit is -inf

    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.kl(reversed_dist))
    assert framework.all_finite(dist.logp(impossible_action))


def test_entropy_gradient_of_extreme_logits_is_finite(framework):
    cls = framework.load("MultiCategorical")
    logits = extreme_logits("float32").astype(np.float32)

    gradient = framework.gradient(lambda x: cls(x, input_lens=(2, 1, 4)).entropy(), at=logits)

    assert np.isfinite(gradient).all()


# --- constants, tracing ---------------------------------------------------------------------------


def test_constants_cached_in_inference_mode_serve_in_training():
    from rlcatalog_categorical.torch import MultiCategorical

    # No other test has these lens, so that nothing is cached yet. Their sum is 14.
    with torch.inference_mode():
        MultiCategorical(torch.zeros(1, 14), input_lens=(2, 5, 7)).sample()

    inputs = torch.zeros(1, 14, requires_grad=True)
    MultiCategorical(inputs, input_lens=(2, 5, 7)).entropy().sum().backward()

    assert inputs.grad is not None


def test_tf_function_traces_without_a_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import MultiCategorical

    @tf.function(input_signature=[tf.TensorSpec([None, 9], tf.float32)])
    def sample_and_score(inputs):
        dist = MultiCategorical(inputs, input_lens=(3, 2, 4))
        first = dist.sample()
        second = dist.sample()
        return first, second, dist.logp(first), dist.logp(tf.cast(first, tf.float32))

    first, second, logp, logp_of_floats = sample_and_score(tf.zeros([300, 9]))

    assert first.shape == (300, 3)
    assert (first.numpy() != second.numpy()).any()  # each call of sample draws anew
    np.testing.assert_allclose(logp, np.log(1 / (3 * 2 * 4)), rtol=1e-5)  # equal logits
    np.testing.assert_array_equal(logp, logp_of_floats)  # values may also be floats


# --- spaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "lens"),
    [
        (spaces.Box(np.array([0, -3]), np.array([1, 4]), dtype=np.int32), (2, 8)),
        (spaces.Box(np.array([[-2], [7]]), np.array([[-2], [9]]), dtype=np.int64), (1, 3)),
        (spaces.Box(0, 3, (2, 2), np.int8), (4, 4, 4, 4)),
        (spaces.Box(0, 3, (2, 2), np.uint16), (4, 4, 4, 4)),
        (spaces.Box(0, 255, (), np.uint8), (256,)),
        (spaces.Box(0, 1, (3,), bool), (2, 2, 2)),
        (spaces.MultiDiscrete([4, 2]), (4, 2)),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), (2, 3, 4, 5)),
    ],
    ids=str,
)
def test_input_lens_count_values_of_each_place(framework, space, lens):
    cls = framework.load("MultiCategorical")

    assert cls.options_for(SpaceInfo.read(space, "action"), {}) == {"input_lens": lens}
    assert cls.required_model_output_shape(space, {}) == sum(lens)
    assert type(cls.required_model_output_shape(space, {})) is int


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, np.inf, (2,), np.int16), "needs a lower and an upper bound"),
        (spaces.Box(0, 50_000, (2,), np.int32), "would need 100,002 logits, more than"),
        (
            spaces.Box(np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max - 1, (1,), np.int64),
            "more than 100,000",
        ),
        (spaces.MultiDiscrete([99_999, 2]), "would need 100,001 logits"),
        (spaces.Box(0, 1, (2,)), "requires a MultiDiscrete or a Box of"),
    ],
    ids=["unbounded", "2 x 50,001", "int64", "99,999 + 2", "float"],
)
def test_input_lens_of_unsuitable_space_are_an_error(space, message):
    with pytest.raises(UnsupportedSpaceError, match=message) as caught:
        input_lens(SpaceInfo.read(space, "action"))

    assert str(caught.value).startswith("action: ")
    assert isinstance(caught.value, CatalogError)
