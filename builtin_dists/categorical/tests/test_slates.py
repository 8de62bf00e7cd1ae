"""A distribution over slates against the categorical of the same logits and exhaustive sums."""

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

N, K, ROWS = 4, 2, 7
ALL = np.array([pair for pair in itertools.product(range(N), repeat=K) if len(set(pair)) == K])
RNG = np.random.default_rng(0)
LOGITS, OTHER = RNG.normal(0, 2, (2, ROWS, len(ALL))).astype(np.float32)
LOWEST = np.finfo(np.float32).min


def slates(kit, logits=LOGITS, dtype=None, **kwargs):
    kwargs = kwargs or {"nvec": (N,) * K}
    return kit.load("SlateMultiCategorical")(kit.tensor(logits, dtype), None, **kwargs)


def truth(logits=LOGITS, allowed=None):
    logits = np.asarray(logits, np.float64)
    return torch.distributions.Categorical(
        logits=torch.from_numpy(logits if allowed is None else np.where(allowed, logits, -np.inf))
    )


def score(kit, dist, slate):
    return kit.array(dist.logp(kit.tensor(np.tile(slate, (ROWS, 1)))))


def test_logp_is_the_log_probability_where_rllib_returns_ones(kit):
    dist = slates(kit)
    for index, slate in enumerate(ALL):
        np.testing.assert_allclose(
            score(kit, dist, slate), truth().logits[:, index], rtol=1e-5, atol=1e-6
        )
    total = sum(np.exp(score(kit, dist, slate)) for slate in itertools.product(range(N), repeat=K))
    np.testing.assert_allclose(total, 1, rtol=1e-5)


@pytest.mark.parametrize("slate", [(1, 1), (0, 4), (-1, 3), (4, 4), (0, -2)])
def test_a_slate_outside_the_list_has_the_lowest_log_probability(kit, slate):
    np.testing.assert_array_equal(score(kit, slates(kit), slate), LOWEST)


def test_entropy_and_kl_are_those_of_torch_distributions(kit):
    np.testing.assert_allclose(kit.array(slates(kit).entropy()), truth().entropy(), rtol=1e-5)
    expected = torch.distributions.kl_divergence(truth(), truth(OTHER))
    np.testing.assert_allclose(kit.array(slates(kit).kl(slates(kit, OTHER))), expected, rtol=1e-5)


def test_samples_follow_the_probabilities(kit):
    kit.seed(0)
    draws = 20_000
    drawn = kit.array(slates(kit, np.tile(LOGITS[:1], (draws, 1))).sample())
    assert (drawn[:, 0] != drawn[:, 1]).all()
    counts = np.array([(drawn == slate).all(axis=1).sum() for slate in ALL])
    assert counts.sum() == draws
    probs = truth().probs[0].numpy()
    assert stats.chisquare(counts, draws * probs).pvalue > 1e-3
    assert stats.chisquare(counts, draws * probs[::-1]).pvalue < 1e-3  # the control


@pytest.mark.parametrize("rows", [1, 7])
def test_nothing_broadcasts(kit, rows):
    dist = slates(kit, LOGITS[:rows])
    for draw in (dist.deterministic_sample, dist.sample):
        sample = draw()
        assert kit.array(sample).dtype == np.int64
        assert tuple(sample.shape) == (rows, K)
        np.testing.assert_array_equal(kit.array(dist.last_sample), kit.array(sample))
    for value in (
        dist.logp(sample),
        dist.entropy(),
        dist.kl(dist),
        dist.entropy_estimate(),
        dist.sampled_action_logp(),
    ):
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype
    stored = kit.array(dist.sample()).astype(np.float32)
    again = slates(kit, kit.array(dist.inputs))
    for form in (stored, stored.tolist(), kit.tensor(stored)):
        np.testing.assert_array_equal(
            kit.array(again.logp(form)), kit.array(dist.sampled_action_logp())
        )


def test_the_most_likely_slate(kit):
    np.testing.assert_array_equal(
        kit.array(slates(kit).deterministic_sample()), ALL[LOGITS.argmax(axis=1)]
    )


def test_a_sample_changed_in_place_is_scored_as_it_is():
    from rlcatalog_categorical.torch import SlateMultiCategorical

    dist = SlateMultiCategorical(torch.from_numpy(LOGITS), nvec=(N,) * K)
    sample = dist.sample()
    sample[:] = torch.tensor(ALL[5])
    np.testing.assert_allclose(dist.logp(sample), truth().logits[:, 5], rtol=1e-5)


def test_a_mask_forbids_every_slate_with_a_forbidden_item(kit):
    kit.seed(1)
    # Item 2 nowhere; item 0 not first.
    mask = np.array([[0, 1, 0, 1, 1, 1, 0, 1]] * ROWS, bool)
    allowed = [(a, b) for a, b in ALL if 2 not in (a, b) and a != 0]
    assert allowed == [(1, 0), (1, 3), (3, 0), (3, 1)]
    cls = kit.load("SlateMultiCategorical")
    options = cls.options_for(SpaceInfo.read(spaces.MultiDiscrete([N] * K), "action"), {})
    inputs, other = (
        cls.masked(kit.tensor(x), kit.tensor(mask), **options) for x in (LOGITS, OTHER)
    )
    dist = cls(inputs, None, **options)
    rows = [tuple(slate) in allowed for slate in ALL]
    entropy = kl = 0
    for slate, index in zip(ALL, range(len(ALL)), strict=True):
        found, p, q = (
            score(kit, dist, slate),
            truth(LOGITS, rows).logits[:, index],
            truth(OTHER, rows).logits[:, index],
        )
        if rows[index]:
            np.testing.assert_allclose(found, p, rtol=1e-5, atol=1e-6)
            entropy, kl = entropy - p.exp() * p, kl + p.exp() * (p - q)
        else:
            assert (found < -1e38).all()
    np.testing.assert_allclose(kit.array(dist.entropy()), entropy, rtol=1e-5)
    np.testing.assert_allclose(kit.array(dist.kl(cls(other, None, **options))), kl, rtol=1e-5)
    many = cls(kit.tensor(np.tile(kit.array(inputs), (10**6 // ROWS // K, 1))), None, **options)
    codes = kit.array(many.sample()) @ [N, 1]
    assert set(codes.tolist()) == {a * N + b for a, b in allowed}
    with pytest.raises(
        ActionMaskError, match="one column per item and place: expected 8 columns, found 12"
    ):
        cls.masked(kit.tensor(LOGITS), kit.tensor(np.ones((ROWS, 12), bool)), **options)


def test_a_list_of_slates_of_ones_own(kit):
    table = np.array([[3, 0], [1, 1], [0, 2]])  # in no order, with an item twice
    for given in (table, table.tolist(), Slates(table), table.astype(np.uint8)):
        dist = slates(kit, LOGITS[:, :3], all_slates=given)
        for index, slate in enumerate(table):
            np.testing.assert_allclose(
                score(kit, dist, slate), truth(LOGITS[:, :3]).logits[:, index], rtol=1e-5, atol=1e-6
            )
        np.testing.assert_array_equal(score(kit, dist, (0, 3)), LOWEST)
        assert {tuple(row) for row in kit.array(dist.sample()).tolist()} <= {
            tuple(row) for row in table.tolist()
        }
    masked = dist.masked(
        kit.tensor(LOGITS[:, :3]),
        kit.tensor(np.array([[1, 1, 1, 0, 1, 1, 1, 1]])),
        all_slates=table,
    )
    np.testing.assert_array_equal(kit.array(masked)[:, 0], LOWEST)
    np.testing.assert_array_equal(kit.array(masked)[:, 1:], LOGITS[:, 1:3])


def test_temperature_divides_the_logits(kit):
    dist = slates(kit, nvec=(N,) * K, temperature=2.0)
    np.testing.assert_allclose(
        kit.array(dist.entropy()), truth(LOGITS.astype(np.float64) / 2).entropy(), rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_extreme_logits_give_finite_numbers(kit, dtype):
    extremes = [0.0, 1.0, -1.0, 1e8, -1e8, 1.1e34, -1.1e34]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    logits = np.array(list(itertools.product(extremes, repeat=3)))
    table = [[0, 1], [1, 0], [2, 2]]
    dist, other = (slates(kit, x.copy(), dtype, all_slates=table) for x in (logits, logits[::-1]))
    for value in (
        dist.logp(dist.sample()),
        dist.logp(np.tile([0, 0], (len(logits), 1))),
        dist.entropy(),
        dist.kl(other),
    ):
        assert np.isfinite(kit.array(value)).all()


def test_gradients_are_those_of_finite_differences(kit):
    at, actions = LOGITS[:2].astype(np.float64), kit.tensor(ALL[[3, 7]])
    for function in (lambda d: d.logp(actions), lambda d: d.entropy()):

        def value(x, function=function):
            return function(kit.load("SlateMultiCategorical")(x, None, nvec=(N,) * K))

        np.testing.assert_allclose(
            kit.gradient(value, at), kit.numeric_gradient(value, at), atol=1e-7
        )


def test_wrong_arguments_are_refused(kit):
    for table, says in (
        ([0, 1], r"found shape \(2,\)"),
        ([[0.5, 1]], "float64"),
        ([[0, -1]], "integers >= 0"),
        ([[0, 1], [0, 1]], "contains a slate twice"),
        ([[9] * 30], "cannot be numbered"),
        ([[]], "found shape"),
    ):
        with pytest.raises(ConfigError, match=says):
            slates(kit, all_slates=table)
    with pytest.raises(ConfigError, match="needs all_slates, nvec or action_space"):
        slates(kit, temperature=1.0)
    with pytest.raises(
        ModelContractError, match=r"over 3 slates requires inputs \[B, 3\], found \(7, 12\)"
    ):
        slates(kit, all_slates=[[0], [1], [2]])
    with pytest.raises(ModelContractError, match="both distributions need the same list of slates"):
        slates(kit).kl(slates(kit, all_slates=ALL[::-1]))


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.MultiDiscrete([3, 4]), "equal entries"),
        (spaces.Discrete(3), "needs a MultiDiscrete space"),
        (spaces.MultiDiscrete([2, 2, 2]), "there are 0 slates of 3 distinct items out of 2"),
        (
            spaces.MultiDiscrete([10] * 5),
            "there are 30,240 slates .* supports 1 to 10,000. Use a shorter slate, or"
            " 'multi_categorical'",
        ),
    ],
)
def test_a_space_without_a_fair_number_of_slates_is_refused(kit, space, says):
    cls = kit.load("SlateMultiCategorical")
    with pytest.raises(UnsupportedSpaceError, match=says):
        cls.required_model_output_shape(space, {})
    with pytest.raises(UnsupportedSpaceError, match=says):
        cls.options_for(SpaceInfo.read(space, "action"), {})


def test_the_size_is_the_number_of_slates(kit):
    cls = kit.load("SlateMultiCategorical")
    for nvec, count in (([4, 4], 12), ([5], 5), ([3, 3, 3], 6), ([[3, 3]], 6)):
        space = spaces.MultiDiscrete(np.array(nvec))
        assert cls.required_model_output_shape(space, {}) == count
        assert (
            len(
                cls(
                    kit.tensor(np.zeros((1, count), np.float32)), None, action_space=space
                ).slates.table
            )
            == count
        )


def test_the_frameworks_agree(kits):
    one, other = (slates(kit) for kit in kits)
    for slate in ALL:
        np.testing.assert_allclose(
            score(kits[0], one, slate), score(kits[1], other, slate), atol=1e-5
        )
    np.testing.assert_allclose(one.entropy(), other.entropy(), atol=1e-5)


def test_what_is_remembered_while_acting_serves_in_training():
    from rlcatalog_categorical.torch import SlateMultiCategorical

    nvec = (6, 6)  # used nowhere else
    with torch.inference_mode():
        SlateMultiCategorical(torch.zeros(1, 30), nvec=nvec).sample()
    inputs = torch.zeros(1, 30, requires_grad=True)
    SlateMultiCategorical(inputs, nvec=nvec).logp([[0, 1]]).sum().backward()
    np.testing.assert_allclose(inputs.grad[0, 0], 1 - 1 / 30, rtol=1e-5)


def test_it_can_be_traced_with_an_unknown_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import SlateMultiCategorical

    @tf.function(input_signature=[tf.TensorSpec([None, 12], tf.float32)])
    def run(inputs):
        dist = SlateMultiCategorical(inputs, nvec=(N,) * K)
        sample = dist.sample()
        return sample, dist.sample(), dist.logp(sample), dist.kl(dist)

    first, second, logp, kl = run(tf.zeros([100, 12]))
    assert (first.numpy() != second.numpy()).any()
    np.testing.assert_allclose(logp, -np.log(12), rtol=1e-5)
    np.testing.assert_array_equal(kl, 0)
