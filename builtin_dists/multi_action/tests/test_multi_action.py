"""The distribution of Tuple and Dict spaces: densities, forms of actions, samples and errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from rlcatalog import ModelCatalog, TupleActions
from rlcatalog.errors import (
    ModelContractError,
    NoClosedFormError,
    StaleOutputError,
    UnsupportedSpaceError,
)

#: Three levels with five leaves; the keys are not sorted.
NESTED = spaces.Tuple(
    [
        spaces.Discrete(5, start=2),
        spaces.Box(-1, 1, (2, 2), np.float32),
        spaces.Dict(
            [
                ("z", spaces.Discrete(4)),
                ("a", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(2)])),
            ]
        ),
    ]
)
#: Inputs of the five leaves: logits, means and log deviations, logits.
LEAF_INPUTS = [5, 8, 4, 5, 2]


def random_inputs(rows=7, seed=0):
    """Return inputs for NESTED, `[rows, 24]`."""
    return np.random.default_rng(seed).normal(0, 1, (rows, 24)).astype(np.float32)


def random_actions(rows=7):
    """Return flat actions of NESTED, `[rows, 9]`."""
    rng = np.random.default_rng(9)
    columns = [
        rng.integers(0, 5, (rows, 1)),
        rng.normal(0, 1, (rows, 4)),
        rng.integers(0, 4, (rows, 1)),
        rng.integers(0, 2, (rows, 1)),
        rng.integers(0, 3, (rows, 1)),
        rng.integers(0, 2, (rows, 1)),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def make_dist(framework, inputs, space=NESTED):
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    return dist_class(framework.tensor(inputs))


def structure(framework, flat):
    """Return flat actions of NESTED in the structure of the space."""
    first = framework.tensor(flat[:, 0].astype(np.int64))
    box = framework.tensor(flat[:, 1:5])
    z = framework.tensor(flat[:, 5].astype(np.int64))
    pair = framework.tensor(flat[:, 6:8])
    last = framework.tensor(flat[:, 8].astype(np.int64))
    return first, box, {"z": z, "a": (pair, last)}


def exact_leaves(inputs):
    """Return the leaves of NESTED in torch.distributions and float64; the MultiDiscrete as two."""
    parts = np.split(np.asarray(inputs, np.float64), np.cumsum(LEAF_INPUTS)[:-1], axis=1)
    first, box, z, pair, last = (torch.from_numpy(part) for part in parts)
    mean, log_std = box.chunk(2, dim=1)
    return [
        Categorical(logits=first),
        Independent(Normal(mean, log_std.exp()), 1),
        Categorical(logits=z),
        Categorical(logits=pair[:, :2]),
        Categorical(logits=pair[:, 2:]),
        Categorical(logits=last),
    ]


def exact_logp(inputs, flat):
    flat = torch.from_numpy(np.asarray(flat, np.float64))
    columns = [flat[:, 0], flat[:, 1:5], flat[:, 5], flat[:, 6], flat[:, 7], flat[:, 8]]
    pairs = zip(exact_leaves(inputs), columns, strict=True)
    return sum(leaf.log_prob(column) for leaf, column in pairs)


def per_child(values):
    """Sum values of the leaves by child of NESTED: the first, the Box, and the Dict's four."""
    return torch.stack([values[0], values[1], sum(values[2:])], dim=1)


def leaves_of(sample):
    """Return the leaves of a structure, in its order."""
    if isinstance(sample, dict):
        sample = tuple(sample.values())
    if not isinstance(sample, tuple):
        return [sample]
    return list(itertools.chain.from_iterable(leaves_of(part) for part in sample))


def assert_close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_sum_over_leaves(framework):
    inputs = random_inputs()
    actions = random_actions()

    logp = make_dist(framework, inputs).logp(framework.tensor(actions))

    assert_close(framework.numpy(logp), exact_logp(inputs, actions))


def test_entropy_is_sum_over_leaves(framework):
    inputs = random_inputs()

    dist = make_dist(framework, inputs)

    expected = sum(leaf.entropy() for leaf in exact_leaves(inputs))
    assert dist.entropy_kind == "exact"
    assert_close(framework.numpy(dist.entropy()), expected)
    assert_close(
        framework.numpy(dist.entropy_estimate()), expected
    )  # exact entropies are not estimated


def test_multi_entropy_is_entropy_of_each_child(framework):
    inputs = random_inputs()

    entropies = make_dist(framework, inputs).multi_entropy()

    expected = per_child([leaf.entropy() for leaf in exact_leaves(inputs)])
    assert_close(framework.numpy(entropies), expected)


def leaf_kls(p, q):
    leaves = zip(exact_leaves(p), exact_leaves(q), strict=True)
    return [kl_divergence(leaf_p, leaf_q) for leaf_p, leaf_q in leaves]


def test_kl_is_sum_over_leaves(framework):
    p = random_inputs(seed=0)
    q = random_inputs(seed=1)

    kl = make_dist(framework, p).kl(make_dist(framework, q))

    assert_close(framework.numpy(kl), sum(leaf_kls(p, q)))


def test_multi_kl_is_kl_of_each_child(framework):
    p = random_inputs(seed=0)
    q = random_inputs(seed=1)

    kls = make_dist(framework, p).multi_kl(make_dist(framework, q))

    assert_close(framework.numpy(kls), per_child(leaf_kls(p, q)))


def logp_of_all_actions(framework, inputs):
    """Return a distribution over a choice and a pair of 2 and a MultiDiscrete, and log
    probabilities of all 36 actions.
    """
    pair = spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])
    space = spaces.Dict([("x", spaces.Discrete(3)), ("b", pair)])
    actions = np.array(list(itertools.product(range(3), range(2), range(2), range(3))))
    dist = make_dist(framework, np.tile(inputs, (36, 1)), space)
    return dist, framework.numpy(dist.logp(actions)).astype(np.float64)


def test_probabilities_of_all_actions_sum_to_one(framework):
    inputs = np.random.default_rng(0).normal(0, 2, 10).astype(np.float32)

    _, logp = logp_of_all_actions(framework, inputs)

    np.testing.assert_allclose(np.exp(logp).sum(), 1, rtol=1e-5)


def test_entropy_is_sum_over_all_actions(framework):
    inputs = np.random.default_rng(0).normal(0, 2, 10).astype(np.float32)

    dist, logp = logp_of_all_actions(framework, inputs)

    expected = -(np.exp(logp) * logp).sum()
    np.testing.assert_allclose(framework.numpy(dist.entropy())[0], expected, rtol=1e-5)


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_dist(framework, random_inputs(seed=0))
        other = make_dist(framework, random_inputs(seed=1))
        tensors = [
            dist.logp(random_actions()),
            dist.entropy(),
            dist.multi_entropy(),
            dist.kl(other),
            *leaves_of(dist.deterministic_sample()),
        ]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        assert_close(by_torch, by_tf)


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
        framework.tensor(np.zeros((7, 7), np.float32)),
        child_distributions=[framework.load("Categorical"), Estimated],
        input_lens=[5, 2],
        action_space=spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (1,))]),
    )


def test_entropy_is_estimated_if_that_of_a_leaf_is(framework, dist_with_estimate):
    assert dist_with_estimate.entropy_kind == "estimate"
    assert (
        framework.load("MultiActionDistribution").entropy_kind == "exact"
    )  # the class has not changed
    with pytest.raises(NoClosedFormError, match=r"action\[1\]"):
        dist_with_estimate.entropy()


def test_entropy_estimate_adds_exact_entropies(framework, dist_with_estimate):
    estimate = framework.numpy(dist_with_estimate.entropy_estimate())

    assert_close(estimate, np.full(7, np.log(5) + 3))


def test_kl_is_defined_if_an_entropy_is_estimated(dist_with_estimate):
    assert tuple(dist_with_estimate.kl(dist_with_estimate).shape) == (7,)


# --- forms of actions -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logp_takes_flat_arrays(framework, dtype):
    inputs = random_inputs()
    actions = random_actions()

    logp = make_dist(framework, inputs).logp(actions.astype(dtype))

    assert_close(framework.numpy(logp), exact_logp(inputs, actions))


def test_logp_rounds_values_of_choices(framework):
    inputs = random_inputs()
    actions = random_actions()
    # Columns 1 to 4 are numbers, the others choices.
    noise = np.float32([0.2, 0, 0, 0, 0, -0.2, 0.1, -0.1, 0.3])

    logp = make_dist(framework, inputs).logp(actions + noise)

    assert_close(framework.numpy(logp), exact_logp(inputs, actions))


@pytest.mark.parametrize(
    "convert",
    [
        lambda framework, first, box, inner: (first, box, inner),
        lambda framework, first, box, inner: TupleActions([first, box, inner]),
        lambda framework, first, box, inner: [first, box, {"a": list(inner["a"]), "z": inner["z"]}],
        lambda framework, first, box, inner: (first, framework.numpy(box).reshape(7, 2, 2), inner),
        lambda framework, first, box, inner: (
            framework.numpy(first)[:, None],
            framework.numpy(box),
            {"z": framework.numpy(inner["z"]).astype(np.float32), "a": inner["a"]},
        ),
        lambda framework, first, box, inner: [first, box, inner["z"], *inner["a"]],
    ],
    ids=[
        "structure",
        "TupleActions",
        "lists and other order of keys",
        "shape of the Box",
        "arrays",
        "list of leaves",
    ],
)
def test_logp_takes_structures_in_any_form(framework, convert):
    inputs = random_inputs()
    actions = random_actions()

    logp = make_dist(framework, inputs).logp(convert(framework, *structure(framework, actions)))

    assert tuple(logp.shape) == (7,)
    assert_close(framework.numpy(logp), exact_logp(inputs, actions))


def test_logp_takes_what_split_and_join_return(framework):
    inputs = random_inputs()
    actions = random_actions()
    dist = make_dist(framework, inputs)

    expected = exact_logp(inputs, actions)
    assert_close(framework.numpy(dist.logp(dist.split(actions))), expected)
    assert_close(framework.numpy(dist.logp(dist.join(structure(framework, actions)))), expected)


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
@pytest.mark.parametrize("form", ["sample", "copy", "flat tensor", "flat array", "leaves"])
def test_sample_has_the_same_logp_in_any_form(framework, method, form):
    dist = make_dist(framework, random_inputs())
    sample = getattr(dist, method)()
    forms = {
        "sample": sample,
        "copy": tuple(sample),
        "flat tensor": dist.join(sample),
        "flat array": framework.numpy(dist.join(sample)),
        "leaves": leaves_of(sample),
    }

    logp = dist.logp(forms[form])

    assert dist.last_sample is sample
    assert_close(framework.numpy(logp), framework.numpy(dist.sampled_action_logp()))


def test_logp_of_changed_sample_is_of_new_values(framework):
    dist = make_dist(framework, random_inputs())
    sample = dist.sample()
    before = framework.numpy(dist.logp(sample))

    sample[2]["z"] = (sample[2]["z"] + 1) % 4

    after = framework.numpy(dist.logp(sample))
    assert_close(after, framework.numpy(dist.logp(dist.join(sample))))
    assert not np.allclose(before, after)


def test_split_undoes_join(framework):
    dist = make_dist(framework, random_inputs(rows=7))
    sample = dist.sample()

    flat = dist.join(sample)
    again = dist.split(flat)

    assert tuple(flat.shape) == (7, 9)
    assert list(again[2]) == list(sample[2])
    for leaf, leaf_again in zip(leaves_of(sample), leaves_of(again), strict=True):
        np.testing.assert_array_equal(framework.numpy(leaf), framework.numpy(leaf_again))
        assert leaf.dtype == leaf_again.dtype


def test_join_keeps_integers_beside_half_precision(framework):
    dist = make_dist(
        framework,
        np.zeros((2, 3002), np.float32),
        spaces.Tuple([spaces.Discrete(3000), spaces.Box(-1, 1, (1,))]),
    )
    index = framework.tensor(np.array([2999, 2051]))  # float16 would round both
    half = framework.tensor(np.array([[0.5], [0.25]], np.float16))

    flat = dist.join((index, half))

    assert framework.numpy(flat).dtype == np.float32
    np.testing.assert_array_equal(framework.numpy(dist.split(flat)[0]), [2999, 2051])


def test_stored_inputs_give_the_same_logp(framework):
    dist = make_dist(framework, random_inputs())
    actions = random_actions()

    restored = make_dist(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(actions)), framework.numpy(dist.logp(actions))
    )


# --- samples --------------------------------------------------------------------------------------

each_method = pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
each_row_count = pytest.mark.parametrize("rows", [1, 7])


@each_row_count
@each_method
def test_samples_have_the_structure_of_the_space(framework, method, rows):
    sample = getattr(make_dist(framework, random_inputs(rows)), method)()

    leaves = [framework.numpy(leaf) for leaf in leaves_of(sample)]
    # Tuple(choice, Box(2, 2), Dict(z=choice, a=Tuple(MultiDiscrete of two, choice)))
    assert isinstance(sample, tuple)
    assert list(sample[2]) == ["z", "a"]
    assert isinstance(sample[2]["a"], tuple)
    assert [leaf.shape for leaf in leaves] == [(rows,), (rows, 4), (rows,), (rows, 2), (rows,)]
    assert [leaf.dtype for leaf in leaves] == ["int64", "float32", "int64", "int64", "int64"]


@each_row_count
@each_method
def test_densities_have_one_number_per_row(framework, method, rows):
    dist = make_dist(framework, random_inputs(rows))
    sample = getattr(dist, method)()

    for value in [dist.logp(sample), dist.entropy(), dist.kl(dist), dist.entropy_estimate()]:
        assert tuple(value.shape) == (rows,)
        assert framework.numpy(value).dtype == np.float32


@each_row_count
def test_multi_entropy_and_multi_kl_have_a_column_per_child(framework, rows):
    dist = make_dist(framework, random_inputs(rows))

    assert tuple(dist.multi_entropy().shape) == (rows, 3)
    assert tuple(dist.multi_kl(dist).shape) == (rows, 3)


def sample_many(framework, inputs, draws=4000):
    framework.seed(0)
    dist = make_dist(framework, np.tile(inputs, (draws, 1)))
    return framework.numpy(dist.join(dist.sample()))


def test_sampled_choices_follow_their_probabilities(framework):
    inputs = random_inputs(rows=1)

    samples = sample_many(framework, inputs, draws=4000)

    leaves = exact_leaves(inputs)
    columns = {0: leaves[0], 5: leaves[2], 6: leaves[3], 7: leaves[4], 8: leaves[5]}
    for column, leaf in columns.items():
        probabilities = leaf.probs[0].numpy()
        counts = np.bincount(samples[:, column].astype(int), minlength=len(probabilities))
        np.testing.assert_allclose(counts / 4000, probabilities, atol=0.04)


def test_sampled_numbers_follow_their_mean_and_deviation(framework):
    inputs = random_inputs(rows=1)
    mean = inputs[0, 5:9]
    std = np.exp(inputs[0, 9:13])

    numbers = sample_many(framework, inputs, draws=4000)[:, 1:5]

    np.testing.assert_allclose((numbers.mean(axis=0) - mean) / std, 0, atol=0.08)
    np.testing.assert_allclose(numbers.std(axis=0) / std, 1, atol=0.06)


def test_samples_are_new(framework):
    dist = make_dist(framework, random_inputs(rows=100))

    first = framework.numpy(dist.join(dist.sample()))
    second = framework.numpy(dist.join(dist.sample()))

    assert not np.array_equal(first, second)


def test_sampled_action_logp_needs_a_sample(framework):
    with pytest.raises(StaleOutputError):
        make_dist(framework, random_inputs()).sampled_action_logp()


@pytest.mark.parametrize("value", [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, 1e-6])
def test_extreme_inputs_give_finite_numbers(framework, value):
    inputs = np.zeros((2, 24), np.float32)
    inputs[:, [0, 5, 13, 17, 22]] = value  # a logit of each choice, and a mean

    dist = make_dist(framework, inputs)

    assert np.isfinite(framework.numpy(dist.join(dist.sample()))).all()
    assert np.isfinite(framework.numpy(dist.sampled_action_logp())).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()


def test_gradients_reach_all_inputs(torch_framework):
    dist_class, _ = ModelCatalog.get_action_dist(NESTED, {}, framework="torch")
    inputs = torch.from_numpy(random_inputs()).requires_grad_()

    dist = dist_class(inputs)
    (dist.logp(random_actions()) + dist.entropy()).sum().backward()

    assert (inputs.grad != 0).all()


def test_rsample_has_gradients_and_sample_has_none():
    dist_class, _ = ModelCatalog.get_action_dist(NESTED, {}, framework="torch")
    dist = dist_class(torch.from_numpy(random_inputs()).requires_grad_())

    _, numbers, _ = dist.sample()
    _, reparameterised_numbers, _ = dist.rsample()

    assert not numbers.requires_grad
    assert reparameterised_numbers.requires_grad


def test_tf_function_takes_any_batch_size(tf_framework):
    dist_class, _ = ModelCatalog.get_action_dist(NESTED, {}, framework="tf")
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, 24]), tf.TensorSpec([None, 9])])
    def score(inputs, actions):
        traces.append(1)  # Python runs in a trace only
        dist = dist_class(inputs)
        sample = dist.sample()
        return {
            "logp": dist.logp(actions),
            "logp of structure": dist.logp(dist.split(actions)),
            "sample": sample,
            "logp of sample": dist.logp(sample),
            "entropy": dist.entropy(),
            "kl": dist.kl(dist),
        }

    for rows in (7, 3):
        inputs = random_inputs(rows)
        actions = random_actions(rows)
        results = score(inputs, actions)

        sample_logp = make_dist(tf_framework, inputs).logp(results["sample"])
        assert_close(results["logp"], exact_logp(inputs, actions))
        assert_close(results["logp of structure"], exact_logp(inputs, actions))
        assert_close(results["logp of sample"], sample_logp)
        assert_close(results["entropy"], sum(leaf.entropy() for leaf in exact_leaves(inputs)))
        assert_close(results["kl"], 0)
    assert len(traces) == 1  # for both numbers of rows


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda first, box, inner: (first, box),
            "expected 3 parts, or one for each of the 5 leaves, found 2",
        ),
        (
            lambda first, box, inner: (first, box, {"z": inner["z"]}),
            r"action\[2\]: expected a dict with the keys \['z', 'a'\].*\['z'\]",
        ),
        (
            lambda first, box, inner: (first, box, {**inner, "y": inner["z"]}),
            r"keys \['z', 'a', 'y'\]",
        ),
        (
            lambda first, box, inner: (first, box, (inner["z"], inner["a"])),
            r"action\[2\]: expected a dict .* found a tuple",
        ),
        (
            lambda first, box, inner: (first, box, {**inner, "a": inner["a"][:1]}),
            r"action\[2\]\['a'\]: expected a tuple of 2 parts, found 1",
        ),
        (
            lambda first, box, inner: {"a": first},
            "action: expected a tuple of 3 parts, found a dict",
        ),
        (
            lambda first, box, inner: (first, box[:, :3], inner),
            r"action\[1\]: expected 4 raw values for each of 7 rows.*\(7, 3\)",
        ),
        (
            lambda first, box, inner: (first[:5], box, inner),
            r"action\[0\]: expected 1 raw value for each of 7 rows.*\(5,\)",
        ),
        (lambda first, box, inner: None, "expected a tuple of 3 parts, found a NoneType"),
    ],
    ids=[
        "missing part",
        "missing key",
        "unknown key",
        "tuple for dict",
        "missing inner part",
        "dict for tuple",
        "missing column",
        "missing rows",
        "None",
    ],
)
def test_logp_of_wrong_structure_is_an_error(framework, change, message):
    dist = make_dist(framework, random_inputs(rows=7))

    with pytest.raises(ModelContractError, match=message):
        dist.logp(change(*structure(framework, random_actions(rows=7))))


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (7, 8, r"of shape \(7, 9\).*action\[1\]: 4.*found \(7, 8\)"),
        (5, 9, r"of shape \(7, 9\).*found \(5, 9\)"),
    ],
    ids=["missing column", "missing rows"],
)
def test_logp_of_flat_actions_of_wrong_shape_is_an_error(framework, rows, columns, message):
    dist = make_dist(framework, random_inputs(rows=7))

    with pytest.raises(ModelContractError, match=f"expected actions {message}"):
        dist.logp(np.zeros((rows, columns), np.float32))


def make_pair(framework, **changes):
    """Create the distribution of a choice and a Box by hand."""
    options = {
        "child_distributions": [framework.load("Categorical"), framework.load("DiagGaussian")],
        "input_lens": [5, 2],
        "action_space": spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (1,))]),
    }
    inputs = framework.tensor(np.zeros((7, 7), np.float32))
    return framework.load("MultiActionDistribution")(inputs, None, **{**options, **changes})


def test_missing_input_len_is_an_error(framework):
    with pytest.raises(ModelContractError, match="2 child_distributions, but 1 input_lens"):
        make_pair(framework, input_lens=[5])


def test_missing_child_is_an_error(framework):
    with pytest.raises(ModelContractError, match="expected 2 child_dist"):
        make_pair(framework, child_distributions=[framework.load("Categorical")], input_lens=[7])


def test_wrong_input_lens_are_an_error(framework):
    with pytest.raises(ModelContractError, match=r"expected 9 model outputs \(action\[0\]: 5"):
        make_pair(framework, input_lens=[5, 4])


def test_missing_action_space_is_an_error(framework):
    with pytest.raises(ModelContractError, match="action_space="):
        make_pair(framework, action_space=None)


def test_action_space_without_parts_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="needs a non-empty Tuple or Dict"):
        make_pair(framework, action_space=spaces.Discrete(2))


def test_kl_with_other_parts_is_an_error(framework):
    with pytest.raises(ModelContractError, match="same parts"):
        make_dist(framework, random_inputs()).kl(make_pair(framework))


def test_kl_with_other_kind_is_an_error(framework):
    categorical = framework.load("Categorical")(framework.tensor(np.zeros((7, 7), np.float32)))

    with pytest.raises(ModelContractError, match="MultiActionDistribution"):
        make_dist(framework, random_inputs()).kl(categorical)
