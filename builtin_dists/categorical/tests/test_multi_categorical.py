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

#: Choices of different and of equal lengths; nine logits in both.
each_lens = pytest.mark.parametrize("lens", [(3, 2, 4), (3, 3, 3)], ids=["ragged", "equal"])
#: Allowed values in seven rows; each choice has at least one, for both lengths.
MASK = np.random.default_rng(0).random((7, 9)) < 0.6
MASK[:, [1, 3, 8]] = True
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}


def random_logits(rows=7, columns=9, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, columns)).astype(np.float32)


def make_multi(framework, logits, lens=(3, 2, 4), dtype=None, **options):
    return framework.load("MultiCategorical")(
        framework.tensor(logits, dtype), None, lens, **options
    )


def make_masked(framework, logits, mask, lens=(3, 2, 4), dtype=None):
    cls = framework.load("MultiCategorical")
    inputs = cls.masked(framework.tensor(logits, dtype), framework.tensor(mask), input_lens=lens)
    return cls(inputs, None, lens)


def exact_choices(logits, lens, mask=True):
    """Return each choice as a distribution of torch.distributions in float64."""
    logits = np.where(mask, np.asarray(logits, np.float64), -np.inf)
    columns = np.split(logits, np.cumsum(lens)[:-1], axis=1)
    return [torch.distributions.Categorical(logits=torch.from_numpy(part)) for part in columns]


def all_actions(lens):
    return np.array(list(itertools.product(*map(range, lens))))


def logp_of_all(framework, dist, lens):
    """Return the log probability of every action in every row, `[actions, rows]`."""
    rows = dist.inputs.shape[0]
    return np.stack(
        [
            framework.numpy(dist.logp(framework.tensor(np.tile(action, (rows, 1)))))
            for action in all_actions(lens)
        ]
    )


# --- densities ------------------------------------------------------------------------------------


@each_lens
def test_logp_is_sum_of_choices_log_probabilities(framework, lens):
    logits = random_logits(rows=7, columns=9)

    logp = logp_of_all(framework, make_multi(framework, logits, lens), lens)

    choices = exact_choices(logits, lens)
    for index, action in enumerate(all_actions(lens)):
        expected = sum(
            choice.logits[:, value] for choice, value in zip(choices, action, strict=True)
        )
        np.testing.assert_allclose(logp[index], expected, rtol=1e-5, atol=1e-5)


@each_lens
def test_probabilities_sum_to_one(framework, lens):
    logp = logp_of_all(framework, make_multi(framework, random_logits(), lens), lens)

    np.testing.assert_allclose(np.exp(logp).sum(axis=0), 1, rtol=1e-5)


@each_lens
def test_multi_entropy_is_entropy_of_each_choice(framework, lens):
    logits = random_logits()

    entropies = framework.numpy(make_multi(framework, logits, lens).multi_entropy())

    for place, choice in enumerate(exact_choices(logits, lens)):
        np.testing.assert_allclose(entropies[:, place], choice.entropy(), rtol=1e-5, atol=1e-6)


@each_lens
def test_entropy_is_sum_of_choices_entropies(framework, lens):
    logits = random_logits()

    entropy = make_multi(framework, logits, lens).entropy()

    expected = sum(choice.entropy() for choice in exact_choices(logits, lens))
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-5)


@each_lens
def test_entropy_is_sum_over_all_actions(framework, lens):
    dist = make_multi(framework, random_logits(), lens)

    logp = logp_of_all(framework, dist, lens).astype(np.float64)

    expected = -(np.exp(logp) * logp).sum(axis=0)
    np.testing.assert_allclose(framework.numpy(dist.entropy()), expected, rtol=1e-5)


@each_lens
def test_multi_kl_is_kl_of_each_choice(framework, lens):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kls = framework.numpy(make_multi(framework, p, lens).multi_kl(make_multi(framework, q, lens)))

    choices = zip(exact_choices(p, lens), exact_choices(q, lens), strict=True)
    for place, (choice_p, choice_q) in enumerate(choices):
        expected = torch.distributions.kl_divergence(choice_p, choice_q)
        np.testing.assert_allclose(kls[:, place], expected, rtol=1e-5, atol=1e-6)


@each_lens
def test_kl_is_sum_over_choices(framework, lens):
    p = make_multi(framework, random_logits(seed=0), lens)
    q = make_multi(framework, random_logits(seed=1), lens)

    expected = framework.numpy(p.multi_kl(q)).sum(axis=1)

    np.testing.assert_allclose(framework.numpy(p.kl(q)), expected, rtol=1e-5)


@each_lens
def test_kl_is_sum_over_all_actions(framework, lens):
    p = make_multi(framework, random_logits(seed=0), lens)
    q = make_multi(framework, random_logits(seed=1), lens)

    logp = logp_of_all(framework, p, lens).astype(np.float64)
    logq = logp_of_all(framework, q, lens).astype(np.float64)

    expected = (np.exp(logp) * (logp - logq)).sum(axis=0)
    np.testing.assert_allclose(framework.numpy(p.kl(q)), expected, rtol=1e-5)


@each_lens
def test_kl_of_same_logits_is_zero(framework, lens):
    logits = random_logits()

    kl = make_multi(framework, logits, lens).kl(make_multi(framework, logits, lens))

    np.testing.assert_allclose(framework.numpy(kl), 0, atol=1e-6)


def test_kl_of_different_lengths_is_an_error(framework):
    logits = random_logits(columns=9)

    with pytest.raises(ModelContractError, match="input_lens differ"):
        make_multi(framework, logits, lens=(3, 2, 4)).kl(
            make_multi(framework, logits, lens=(3, 3, 3))
        )


def test_kl_with_bernoulli_is_an_error(framework):
    logits = random_logits()

    with pytest.raises(ModelContractError, match="expects another MultiCategorical"):
        make_multi(framework, logits).kl(framework.load("Bernoulli")(framework.tensor(logits)))


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    actions = np.tile([2, 1, 3], (7, 1))
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_multi(framework, random_logits(seed=0))
        other = make_multi(framework, random_logits(seed=1))
        tensors = [
            dist.logp(actions),
            dist.multi_entropy(),
            dist.multi_kl(other),
            dist.deterministic_sample(),
        ]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        np.testing.assert_allclose(by_torch, by_tf, atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@each_lens
@pytest.mark.parametrize("rows", [1, 7])
def test_densities_have_one_number_per_row(framework, lens, rows):
    dist = make_multi(framework, random_logits(rows), lens)
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


@each_lens
@pytest.mark.parametrize("rows", [1, 7])
def test_multi_entropy_and_multi_kl_have_a_column_per_choice(framework, lens, rows):
    dist = make_multi(framework, random_logits(rows), lens)

    assert tuple(dist.multi_entropy().shape) == (rows, 3)
    assert tuple(dist.multi_kl(dist).shape) == (rows, 3)


@each_lens
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_a_column_per_choice(framework, method, lens, rows):
    dist = make_multi(framework, random_logits(rows), lens)

    sample = framework.numpy(getattr(dist, method)())

    assert sample.shape == (rows, 3)
    assert sample.dtype == np.int64


@each_lens
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_sampled_action_logp_is_that_of_the_last_sample(framework, method, lens, rows):
    dist = make_multi(framework, random_logits(rows), lens)

    sample = framework.numpy(getattr(dist, method)())

    np.testing.assert_array_equal(framework.numpy(dist.last_sample), sample)
    np.testing.assert_allclose(
        framework.numpy(dist.sampled_action_logp()), framework.numpy(dist.logp(sample)), rtol=1e-5
    )


@pytest.mark.parametrize(
    "convert",
    [
        lambda framework, actions: actions,
        lambda framework, actions: actions.astype(np.float32),
        lambda framework, actions: actions.astype(np.uint8),
        lambda framework, actions: actions.tolist(),
        lambda framework, actions: actions.reshape(7, 2, 2),
        lambda framework, actions: framework.tensor(actions),
        lambda framework, actions: framework.tensor(actions.astype(np.float32)),
        lambda framework, actions: framework.tensor(actions, "bfloat16"),
        lambda framework, actions: [framework.tensor(column) for column in actions.T],
        lambda framework, actions: tuple(framework.tensor(column) for column in actions.T),
        lambda framework, actions: [column[:, None] for column in actions.T],
        lambda framework, actions: list(actions.T),
    ],
    ids=[
        "int64",
        "float32",
        "uint8",
        "list of rows",
        "shape of the space",
        "tensor",
        "float32 tensor",
        "bfloat16 tensor",
        "list of tensors",
        "tuple of tensors",
        "list of columns",
        "list of arrays",
    ],
)
def test_logp_takes_actions_in_any_form(framework, convert):
    logits = random_logits(rows=7, columns=12)
    actions = np.random.default_rng(0).integers(0, 2, (7, 4))

    logp = make_multi(framework, logits, lens=(2, 4, 3, 3)).logp(convert(framework, actions))

    expected = 0
    for place, choice in enumerate(exact_choices(logits, lens=(2, 4, 3, 3))):
        expected = expected + choice.log_prob(torch.from_numpy(actions[:, place]))
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


def test_logp_reads_list_as_choices_even_if_as_long_as_rows(framework):
    dist = make_multi(framework, random_logits(rows=3), lens=(3, 2, 4))
    actions = np.array([[2, 1, 3], [0, 1, 0], [1, 0, 2]])

    logp_of_columns = dist.logp(list(actions.T))

    np.testing.assert_array_equal(
        framework.numpy(logp_of_columns), framework.numpy(dist.logp(actions))
    )


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_logp_reads_array_and_list_of_columns_alike(framework, rows):
    dist = make_multi(framework, random_logits(rows, columns=5), lens=(2, 3))
    actions = np.zeros((rows, 2), np.int64)

    by_array = framework.numpy(dist.logp(framework.tensor(actions)))
    by_list = framework.numpy(dist.logp([framework.tensor(column) for column in actions.T]))

    assert by_list.shape == (rows,)
    np.testing.assert_array_equal(by_array, by_list)


def test_logp_of_single_choice_takes_list_of_one_tensor(framework):
    logits = random_logits(rows=4, columns=3)
    actions = np.array([2, 0, 1, 1])

    logp = make_multi(framework, logits, lens=(3,)).logp([framework.tensor(actions)])

    expected = special.log_softmax(logits, axis=1)[np.arange(4), actions]
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 7), (7, 2), (3,), (1, 3), (8, 3), (7, 4)])
def test_logp_of_actions_with_wrong_shape_is_an_error(framework, shape):
    dist = make_multi(framework, random_logits(rows=7), lens=(3, 2, 4))

    with pytest.raises(ModelContractError, match=r"expected actions \[7, 3\], or a list of 3"):
        dist.logp(framework.tensor(np.zeros(shape)))


def test_inputs_may_be_an_array(framework):
    logits = random_logits(columns=5)
    cls = framework.load("MultiCategorical")

    from_array = cls(logits, input_lens=(2, 3))
    from_tensor = cls(framework.tensor(logits), input_lens=(2, 3))

    actions = framework.numpy(from_array.deterministic_sample())
    np.testing.assert_array_equal(actions, framework.numpy(from_tensor.deterministic_sample()))
    np.testing.assert_array_equal(
        framework.numpy(from_array.logp(actions)), framework.numpy(from_tensor.logp(actions))
    )


def test_inputs_are_not_changed(framework):
    logits = random_logits()
    inputs = framework.tensor(logits.copy())

    dist = framework.load("MultiCategorical")(inputs, None, (3, 2, 4))
    dist.sample()
    dist.entropy()
    dist.kl(dist)

    np.testing.assert_array_equal(framework.numpy(inputs), logits)
    assert dist.inputs is inputs


@pytest.mark.parametrize("lens", [(2, 3), (3, 3)], ids=["ragged", "equal"])
@pytest.mark.parametrize("wrong", ["rank 3", "rank 1", "too wide", "middle axis"])
def test_inputs_of_wrong_shape_are_an_error(framework, lens, wrong):
    width = sum(lens)
    shapes = {
        "rank 3": (4, width, 1),
        "rank 1": (width,),
        "too wide": (4, width + 1),
        "middle axis": (4, 1, width),
    }

    with pytest.raises(ModelContractError, match=rf"requires inputs \[B, {width}\], found \("):
        make_multi(framework, np.zeros(shapes[wrong], np.float32), lens)


@pytest.mark.parametrize(
    "lens",
    [[3, 2, 4], np.array([3, 2, 4]), np.array([3, 2, 4], np.int32), tuple(np.array([3, 2, 4]))],
    ids=["list", "int64", "int32", "tuple of int64"],
)
def test_input_lens_take_any_form(framework, lens):
    logits = random_logits()

    entropy = make_multi(framework, logits, lens).entropy()

    expected = make_multi(framework, logits, lens=(3, 2, 4)).entropy()
    np.testing.assert_array_equal(framework.numpy(entropy), framework.numpy(expected))


def test_input_lens_default_to_those_of_the_action_space(framework):
    logits = random_logits()
    space = spaces.MultiDiscrete([3, 2, 4], start=[5, 0, -3])

    entropy = make_multi(framework, logits, lens=None, action_space=space).entropy()

    expected = make_multi(framework, logits, lens=(3, 2, 4)).entropy()
    np.testing.assert_array_equal(framework.numpy(entropy), framework.numpy(expected))


def test_input_lens_or_action_space_is_required(framework):
    with pytest.raises(ConfigError, match="needs input_lens") as caught:
        make_multi(framework, random_logits(), lens=None)

    assert str(caught.value).endswith("(the number of values of each choice) or action_space.")


def test_input_lens_below_1_are_an_error(framework):
    with pytest.raises(ConfigError, match=r"each at least 1; found \(9, 0\)"):
        make_multi(framework, random_logits(columns=9), lens=(9, 0))


def test_stored_inputs_give_the_same_distribution(framework):
    dist = make_masked(framework, random_logits(), MASK)
    stored_action = framework.numpy(dist.sample()).astype(np.float32)

    restored = make_multi(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_action)), framework.numpy(dist.sampled_action_logp())
    )
    np.testing.assert_array_equal(
        framework.numpy(restored.entropy()), framework.numpy(dist.entropy())
    )


def test_parts_have_the_size_of_each_choice(framework):
    space = SpaceInfo.read(spaces.MultiDiscrete([2, 5, 3]), "action")

    parts = framework.load("MultiCategorical").parts(space, 10, {"input_lens": (2, 5, 3)})

    assert [part_space.n for part_space, _, _ in parts] == [2, 5, 3]
    assert [size for _, _, size in parts] == [2, 5, 3]


# --- samples --------------------------------------------------------------------------------------


@each_lens
def test_samples_of_each_choice_follow_its_probabilities(framework, lens):
    framework.seed(2)
    draws = 20_000
    logits = random_logits(rows=1)

    samples = framework.numpy(make_multi(framework, np.tile(logits, (draws, 1)), lens).sample())

    for place, choice in enumerate(exact_choices(logits, lens)):
        counts = np.bincount(samples[:, place], minlength=lens[place])
        assert stats.chisquare(counts, draws * choice.probs[0].numpy()).pvalue > 1e-3
        # The test can tell: slightly different logits do not fit.
        wrong = special.softmax(choice.logits[0].numpy() + np.arange(lens[place]) * 0.2)
        assert stats.chisquare(counts, draws * wrong).pvalue < 1e-3


@each_lens
def test_samples_of_choices_are_independent(framework, lens):
    framework.seed(2)
    draws = 20_000
    logits = random_logits(rows=1)

    samples = framework.numpy(make_multi(framework, np.tile(logits, (draws, 1)), lens).sample())

    logp = logp_of_all(framework, make_multi(framework, logits, lens), lens)[:, 0]
    expected_counts = draws * np.exp(logp.astype(np.float64))
    counts = np.bincount(np.ravel_multi_index(samples.T, lens), minlength=len(logp))
    # The chi-squared test needs more than about five expected draws of each action.
    is_frequent = expected_counts > 5
    expected_counts = expected_counts[is_frequent]
    counts = counts[is_frequent]
    expected_counts *= counts.sum() / expected_counts.sum()
    assert stats.chisquare(counts, expected_counts).pvalue > 1e-3


def test_samples_are_new(framework):
    dist = make_multi(framework, np.zeros((500, 9), np.float32), lens=(3, 3, 3))

    first = framework.numpy(dist.sample())
    second = framework.numpy(dist.sample())

    assert 0.25 < (first == second).mean() < 0.42  # by chance: 1 of 3


# --- masks ----------------------------------------------------------------------------------------


@each_lens
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_masked_entropy_is_that_of_allowed_values(framework, lens, dtype):
    logits = random_logits(rows=7, columns=9)

    entropy = framework.numpy(make_masked(framework, logits, MASK, lens, dtype).entropy())

    rounded = framework.numpy(framework.tensor(logits, dtype))  # the logits as the dtype holds them
    expected = sum(choice.entropy() for choice in exact_choices(rounded, lens, MASK))
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(entropy, expected, rtol=tolerance, atol=4 * tolerance)


@each_lens
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_masked_kl_is_that_of_allowed_values(framework, lens, dtype):
    p = framework.numpy(framework.tensor(random_logits(seed=0), dtype))
    q = framework.numpy(framework.tensor(random_logits(seed=1), dtype))

    dist = make_masked(framework, p, MASK, lens, dtype)
    kl = framework.numpy(dist.kl(make_masked(framework, q, MASK, lens, dtype)))

    expected = 0
    for choice_p, choice_q in zip(
        exact_choices(p, lens, MASK), exact_choices(q, lens, MASK), strict=True
    ):
        expected = expected + torch.distributions.kl_divergence(choice_p, choice_q)
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(kl, expected, rtol=tolerance, atol=4 * tolerance)


@each_lens
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_masked_probabilities_of_allowed_actions_sum_to_one(framework, lens, dtype):
    dist = make_masked(framework, random_logits(), MASK, lens, dtype)

    logp = logp_of_all(framework, dist, lens)

    # An action is allowed in a row if the value of each choice is.
    masks = np.split(MASK, np.cumsum(lens)[:-1], axis=1)
    is_allowed = np.array(
        [
            np.all([mask[:, value] for mask, value in zip(masks, action, strict=True)], axis=0)
            for action in all_actions(lens)
        ]
    )
    probabilities = np.where(is_allowed, np.exp(logp), 0)
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=20 * TOLERANCES[dtype])
    assert np.isfinite(logp).all()
    assert (logp[is_allowed] > -100).all()
    assert (logp[~is_allowed] < -6e4).all()


@pytest.mark.grid
@each_lens
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_values_are_not_drawn_in_a_million_draws(framework, lens, dtype):
    framework.seed(0)
    copies = 10**6 // (7 * 3) + 1  # of seven rows with three choices
    mask = np.tile(MASK, (copies, 1))
    # The forbidden values would be very likely.
    logits = np.where(mask, np.tile(random_logits(), (copies, 1)), 50)

    samples = framework.numpy(make_masked(framework, logits, mask, lens, dtype).sample())

    assert samples.size >= 10**6
    first_columns = np.cumsum(lens) - lens
    assert (samples < lens).all()
    assert np.take_along_axis(mask, first_columns + samples, axis=1).all()


def test_samples_are_in_range_even_if_mask_allows_nothing(framework):
    framework.seed(1)
    logits = np.tile(random_logits(), (2000, 1))

    dist = make_masked(framework, logits, np.zeros(logits.shape, bool), lens=(3, 2, 4))

    # Shorter choices have padding up to four values.
    assert (framework.numpy(dist.sample()) < [3, 2, 4]).all()
    assert (framework.numpy(dist.deterministic_sample()) < [3, 2, 4]).all()
    assert np.isfinite(framework.numpy(dist.sampled_action_logp())).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()


# --- gradients ------------------------------------------------------------------------------------


def logp_of_actions(dist, other):
    return dist.logp(np.array([[1, 0, 2], [2, 1, 0]]))


def entropy(dist, other):
    return dist.entropy()


def kl(dist, other):
    return dist.kl(other)


def reverse_kl(dist, other):
    return other.kl(dist)


quantities = pytest.mark.parametrize("quantity", [logp_of_actions, entropy, kl, reverse_kl])


@each_lens
@quantities
def test_gradient_matches_finite_differences(framework, lens, quantity):
    logits = random_logits(rows=2, seed=0).astype(np.float64)
    other = make_multi(framework, random_logits(rows=2, seed=1).astype(np.float64), lens)

    def compute(inputs):
        return quantity(framework.load("MultiCategorical")(inputs, None, lens), other)

    np.testing.assert_allclose(
        framework.gradient(compute, at=logits),
        framework.numeric_gradient(compute, at=logits),
        atol=1e-7,
    )


@each_lens
@quantities
def test_masked_gradient_is_zero_for_forbidden_values(framework, lens, quantity):
    cls = framework.load("MultiCategorical")
    mask = MASK[:2]
    other = make_multi(framework, random_logits(rows=2, seed=1).astype(np.float64), lens)

    def compute(logits):
        return quantity(cls(cls.masked(logits, framework.tensor(mask)), None, lens), other)

    gradient = framework.gradient(compute, at=random_logits(rows=2, seed=0).astype(np.float64))

    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~mask], 0)


# --- extreme inputs -------------------------------------------------------------------------------


def extreme_logits(dtype):
    """Return logits of 2, 1 and 4 values; the very last value has the logit -inf."""
    extremes = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1e-6]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    triples = np.array(list(itertools.product(extremes, repeat=3)))
    return np.concatenate([triples, triples[::-1], np.full((len(triples), 1), -np.inf)], axis=1)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_of_extreme_logits_are_possible(framework, dtype, method):
    dist = make_multi(framework, extreme_logits(dtype), lens=(2, 1, 4), dtype=dtype)

    sample = getattr(dist, method)()

    # The last of the 2 + 1 + 4 logits is -inf.
    assert (framework.numpy(sample) < [2, 1, 3]).all()
    assert np.isfinite(framework.numpy(dist.logp(sample))).all()


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_densities_of_extreme_logits_are_finite(framework, dtype):
    logits = extreme_logits(dtype)
    dist = make_multi(framework, logits, lens=(2, 1, 4), dtype=dtype)
    other = make_multi(framework, logits[::-1].copy(), lens=(2, 1, 4), dtype=dtype)
    impossible_action = np.tile([0, 0, 3], (len(logits), 1))

    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.kl(other))).all()
    assert np.isfinite(framework.numpy(dist.logp(impossible_action))).all()


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_entropy_gradient_of_extreme_logits_is_finite(framework, dtype):
    cls = framework.load("MultiCategorical")

    gradient = framework.gradient(
        lambda x: cls(x, None, (2, 1, 4)).entropy(), extreme_logits(dtype)
    )

    assert np.isfinite(gradient).all()


# --- constants, tracing ---------------------------------------------------------------------------


def test_constants_cached_in_inference_mode_serve_in_training():
    from rlcatalog_categorical.torch import MultiCategorical

    lens = (2, 5, 7)  # used by no other test, so that nothing is cached yet
    with torch.inference_mode():
        MultiCategorical(torch.zeros(1, 14), None, lens).sample()

    inputs = torch.zeros(1, 14, requires_grad=True)
    MultiCategorical(inputs, None, lens).entropy().sum().backward()

    assert inputs.grad is not None


@pytest.fixture(scope="module")
def traced():
    """A TensorFlow function of any number of rows: samples twice and computes densities."""
    import tensorflow as tf

    from rlcatalog_categorical.tf import MultiCategorical

    @tf.function(input_signature=[tf.TensorSpec([None, 9], tf.float32)])
    def run(inputs):
        dist = MultiCategorical(inputs, None, (3, 2, 4))
        sample = dist.sample()
        return {
            "sample": sample,
            "second sample": dist.sample(),
            "logp": dist.logp(sample),
            "logp of floats": dist.logp(tf.cast(sample, tf.float32)),
            "kl": dist.kl(dist),
        }

    return run


@pytest.mark.parametrize("rows", [300, 1])
def test_tf_function_takes_any_batch_size(traced, rows):
    results = traced(np.zeros((rows, 9), np.float32))

    assert results["sample"].shape == (rows, 3)
    np.testing.assert_allclose(results["logp"], -np.log(3 * 2 * 4), rtol=1e-5)
    np.testing.assert_array_equal(results["logp"], results["logp of floats"])
    np.testing.assert_allclose(results["kl"], 0, atol=1e-6)


def test_tf_function_draws_a_new_sample_each_time(traced):
    results = traced(np.zeros((300, 9), np.float32))

    assert (results["sample"].numpy() != results["second sample"].numpy()).any()


# --- spaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "lens"),
    [
        (spaces.Box(np.array([0, -3]), np.array([1, 4]), dtype=np.int32), (2, 8)),
        (spaces.Box(np.array([[-2], [7]]), np.array([[-2], [9]]), dtype=np.int64), (1, 3)),
        (spaces.Box(0, 3, (2, 2), np.int8), (4, 4, 4, 4)),
        (spaces.Box(0, 3, (2, 2), np.int32), (4, 4, 4, 4)),
        (spaces.Box(0, 3, (2, 2), np.int64), (4, 4, 4, 4)),
        (spaces.Box(0, 3, (2, 2), np.uint8), (4, 4, 4, 4)),
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
        (spaces.Box(0, 50_000, (2,), np.int32), "would need 100,002 logits, more than 100,000;"),
        (
            spaces.Box(np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max - 1, (1,), np.int64),
            "more than 100,000",
        ),
        (spaces.MultiDiscrete([99_999, 2]), "would need 100,001 logits"),
        (spaces.Box(0, 1, (2,)), "requires a MultiDiscrete or a Box of integers"),
    ],
    ids=["unbounded", "2 x 50,001", "int64", "99,999 + 2", "float"],
)
def test_input_lens_of_unsuitable_space_are_an_error(space, message):
    with pytest.raises(UnsupportedSpaceError, match=message) as caught:
        input_lens(SpaceInfo.read(space, "action"))

    assert str(caught.value).startswith("action: ")
    assert isinstance(caught.value, CatalogError)
