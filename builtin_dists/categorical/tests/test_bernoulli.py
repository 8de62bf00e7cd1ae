"""Independent bits against torch.distributions, exhaustive sums and one framework against the
other.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog.errors import ActionMaskError, ModelContractError, UnsupportedSpaceError

N, ROWS = 4, 7
RNG = np.random.default_rng(0)
LOGITS, OTHER = RNG.normal(0, 2, (2, ROWS, N)).astype(np.float32)
#: For each bit: may it be 0, may it be 1.
MASK = np.array([[[1, 1], [1, 0], [0, 1], [1, 1]]] * ROWS, np.int8)
MASK[3] = 1
FREE = MASK.all(axis=2)
ALL = np.array(list(itertools.product((0, 1), repeat=N)))
PRECISION = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}


def bits(kit, logits=LOGITS, dtype=None):
    return kit.load("Bernoulli")(kit.tensor(logits, dtype))


def masked(kit, logits=LOGITS, mask=MASK, dtype=None):
    cls = kit.load("Bernoulli")
    return cls(cls.masked(kit.tensor(logits, dtype), kit.tensor(mask.reshape(len(mask), -1))))


def truth(logits):
    return torch.distributions.Bernoulli(logits=torch.from_numpy(np.asarray(logits, np.float64)))


def true_logp(logits, action):
    """log probability of each bit, `[B, N]`."""
    return (
        truth(logits)
        .log_prob(torch.from_numpy(np.broadcast_to(action, (ROWS, N)).astype(np.float64)))
        .numpy()
    )


def scores(kit, dist):
    """logp of every action in every row, `[A, B]`."""
    return np.stack(
        [kit.array(dist.logp(kit.tensor(np.tile(a, (dist.inputs.shape[0], 1))))) for a in ALL]
    )


def test_all_is_that_of_torch_distributions_and_exhaustive_sums(kit):
    one, other = bits(kit), bits(kit, OTHER)
    logp = scores(kit, one).astype(np.float64)
    expected = np.stack([true_logp(LOGITS, action).sum(axis=1) for action in ALL])
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.exp(logp).sum(axis=0), 1, rtol=1e-5)
    kl = torch.distributions.kl_divergence(truth(LOGITS), truth(OTHER))
    np.testing.assert_allclose(kit.array(one.multi_entropy()), truth(LOGITS).entropy(), rtol=1e-5)
    np.testing.assert_allclose(kit.array(one.entropy()), truth(LOGITS).entropy().sum(1), rtol=1e-5)
    np.testing.assert_allclose(
        kit.array(one.entropy()), -(np.exp(logp) * logp).sum(axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(kit.array(one.multi_kl(other)), kl, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(kit.array(one.kl(other)), kl.sum(1), rtol=1e-5)
    np.testing.assert_array_equal(kit.array(one.kl(bits(kit))), 0)


def test_small_probabilities_are_not_lost(kit):
    logits = np.array([[20.0, -30.0], [-60.0, 80.0], [-9.0, 9.0]], np.float32)
    dist = bits(kit, logits)
    rare = special.log_expit(-np.abs(logits.astype(np.float64)))
    common = special.log_expit(np.abs(logits.astype(np.float64)))
    likely = kit.array(dist.deterministic_sample())
    np.testing.assert_array_equal(likely, logits > 0)
    near = {"rtol": 1e-5, "atol": 1e-6}  # the rounding error of a logit
    np.testing.assert_allclose(kit.array(dist.logp(likely)), common.sum(axis=1), **near)
    np.testing.assert_allclose(kit.array(dist.logp(1 - likely)), rare.sum(axis=1), **near)
    expected = -(np.exp(rare) * rare + np.exp(common) * common)
    np.testing.assert_allclose(kit.array(dist.multi_entropy()), expected, **near)


@pytest.mark.parametrize("dtype", PRECISION)
def test_under_a_mask_all_is_that_of_the_free_bits_alone(kit, dtype):
    one, other = masked(kit, dtype=dtype), masked(kit, OTHER, dtype=dtype)
    near = {"rtol": PRECISION[dtype], "atol": 4 * PRECISION[dtype]}
    rounded = kit.array(kit.tensor(LOGITS, dtype))
    exact, exact_other = truth(rounded), truth(kit.array(kit.tensor(OTHER, dtype)))
    np.testing.assert_allclose(
        kit.array(one.entropy()), (exact.entropy().numpy() * FREE).sum(1), **near
    )
    kl = torch.distributions.kl_divergence(exact, exact_other).numpy()
    np.testing.assert_allclose(kit.array(one.kl(other)), (kl * FREE).sum(1), **near)
    logp = scores(kit, one)
    assert np.isfinite(logp).all()
    allowed = np.stack(
        [np.take_along_axis(MASK, a[None, :, None], axis=2)[..., 0].all(axis=1) for a in ALL]
    )
    assert allowed.sum(axis=0).tolist() == [4, 4, 4, 16, 4, 4, 4]
    assert (logp[~allowed] < -6e4).all()
    for row in range(ROWS):
        free = FREE[row]
        for score, action in zip(logp[allowed[:, row], row], ALL[allowed[:, row]], strict=True):
            np.testing.assert_allclose(score, true_logp(rounded, action)[row, free].sum(), **near)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_forced_bit_differs_in_a_million_draws(kit, dtype):
    kit.seed(0)
    times = 10**6 // (ROWS * N) + 1
    # However likely the forbidden values were.
    logits = np.tile(
        np.where(MASK[..., 0] == 0, -60, np.where(MASK[..., 1] == 0, 60, LOGITS)), (times, 1)
    )
    drawn = kit.array(
        masked(kit, logits.astype(np.float32), np.tile(MASK, (times, 1, 1)), dtype).sample()
    )
    assert drawn.size >= 10**6
    chosen = np.take_along_axis(np.tile(MASK, (times, 1, 1)), drawn[..., None], axis=2)
    assert chosen.all()
    assert 0.01 < drawn[:, 0].mean() < 0.99


def test_a_mask_of_another_width_is_refused(kit):
    with pytest.raises(
        ActionMaskError, match=r"two columns per bit .* expected 8 columns, found shape \(7, 4\)"
    ):
        kit.load("Bernoulli").masked(kit.tensor(LOGITS), kit.tensor(np.ones((ROWS, N), bool)))


def test_samples_follow_the_probabilities(kit):
    kit.seed(1)
    draws = 20_000
    samples = kit.array(bits(kit, np.tile(LOGITS[:1], (draws, 1))).sample())
    joint = samples @ (2 ** np.arange(N)[::-1])
    expected = np.exp(scores(kit, bits(kit, LOGITS[:1]))[:, 0].astype(np.float64))
    assert (
        stats.chisquare(
            np.bincount(joint, minlength=2**N), draws * expected / expected.sum()
        ).pvalue
        > 1e-3
    )
    wrong = special.expit(LOGITS[0] + 0.15)
    assert stats.binomtest(int(samples[:, 0].sum()), draws, wrong[0]).pvalue < 1e-2  # the control


def test_gradients_are_those_of_finite_differences(kit):
    cls, at = kit.load("Bernoulli"), LOGITS[:2].astype(np.float64)
    other = kit.tensor(OTHER[:2].astype(np.float64))
    for function in (
        lambda d: d.logp(kit.tensor(np.array([[0, 1, 1, 0], [1, 0, 1, 0]]))),
        lambda d: d.entropy(),
        lambda d: d.kl(cls(other)),
        lambda d: cls(other).kl(d),
    ):
        found = kit.gradient(lambda x, f=function: f(cls(x)), at)
        np.testing.assert_allclose(
            found, kit.numeric_gradient(lambda x, f=function: f(cls(x)), at), atol=1e-7
        )
        mask = kit.tensor(MASK[:2].reshape(2, -1))
        found = kit.gradient(lambda x, f=function, m=mask: f(cls(cls.masked(x, m))), at)
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found[~FREE[:2]], 0)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, N])
def test_nothing_broadcasts(kit, rows, n):
    dist = bits(kit, LOGITS[:rows, :n])
    for draw in (dist.sample, dist.deterministic_sample):
        sample = draw()
        assert kit.array(sample).dtype == np.int64
        assert tuple(sample.shape) == (rows, n)
        np.testing.assert_array_equal(kit.array(dist.last_sample), kit.array(sample))
        np.testing.assert_array_equal(
            kit.array(dist.sampled_action_logp()),
            kit.array(dist.logp(kit.array(sample).astype(np.float32))),
        )
    for value in (
        dist.logp(sample),
        dist.entropy(),
        dist.kl(dist),
        dist.entropy_estimate(),
        dist.sampled_action_logp(),
    ):
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype
    for value in (dist.multi_entropy(), dist.multi_kl(dist)):
        assert tuple(value.shape) == (rows, n)


def test_bits_may_come_in_any_form(kit):
    actions = RNG.integers(0, 2, (ROWS, N))
    expected = true_logp(LOGITS, actions).sum(axis=1)
    for form in (
        actions,
        actions.astype(np.float32),
        actions.astype(np.int8),
        actions.astype(bool),
        actions.tolist(),
        actions.reshape(ROWS, 2, 2),
        kit.tensor(actions),
        kit.tensor(actions, "bfloat16"),
    ):
        np.testing.assert_allclose(kit.array(bits(kit).logp(form)), expected, rtol=1e-5)


def test_each_sample_is_fresh(kit):
    dist = bits(kit, np.zeros((500, N), np.float32))
    assert 0.4 < (kit.array(dist.sample()) == kit.array(dist.sample())).mean() < 0.6


@pytest.mark.parametrize("dtype", PRECISION)
def test_extreme_logits_give_finite_numbers(kit, dtype):
    extremes = np.array([0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1e-6])
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    logits = np.array(list(itertools.product(extremes, repeat=3)))
    dist, other = bits(kit, logits, dtype), bits(kit, logits[::-1].copy(), dtype)
    sample = dist.sample()
    drawn = kit.array(sample)
    assert (drawn[logits > 1e4] == 1).all()
    assert (drawn[logits < -1e4] == 0).all()
    for value in (
        dist.logp(sample),
        dist.logp(1 - drawn),
        dist.entropy(),
        dist.kl(other),
        dist.kl(dist),
    ):
        assert np.isfinite(kit.array(value)).all()
    assert np.isfinite(kit.gradient(lambda x: kit.load("Bernoulli")(x).entropy(), logits)).all()


def test_the_frameworks_agree(kits):
    actions = RNG.integers(0, 2, (ROWS, N))
    found = []
    for kit in kits:
        dist = bits(kit)
        values = (
            dist.logp(actions),
            dist.multi_entropy(),
            dist.multi_kl(bits(kit, OTHER)),
            dist.deterministic_sample(),
        )
        found.append([kit.array(value) for value in values])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_what_is_stored_gives_the_same_numbers(kit):
    dist = masked(kit)
    stored = kit.array(dist.sample()).astype(np.float32)
    again = bits(kit, kit.array(dist.inputs))
    np.testing.assert_array_equal(
        kit.array(again.logp(stored)), kit.array(dist.sampled_action_logp())
    )
    np.testing.assert_array_equal(kit.array(again.entropy()), kit.array(dist.entropy()))


def test_another_kind_is_refused(kit):
    with pytest.raises(ModelContractError, match="expects another Bernoulli"):
        bits(kit).kl(None)
    with pytest.raises(
        UnsupportedSpaceError, match="Bernoulli requires a MultiBinary, found Discrete"
    ):
        bits(kit).required_model_output_shape(spaces.Discrete(2))


def test_multi_binary_of_any_rank_is_served_where_rllib_has_nothing(kit):
    cls = kit.load("Bernoulli")
    for space, count in (
        (spaces.MultiBinary(5), 5),
        (spaces.MultiBinary((2, 3, 4)), 24),
        (spaces.MultiBinary([1]), 1),
    ):
        assert cls.required_model_output_shape(space, {}) == count


def test_it_can_be_traced_with_an_unknown_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import Bernoulli

    @tf.function(input_signature=[tf.TensorSpec([None, N], tf.float32)])
    def run(inputs):
        dist = Bernoulli(inputs)
        sample = dist.sample()
        return (
            sample,
            dist.sample(),
            dist.logp(sample),
            dist.logp(tf.cast(sample, tf.float32)),
            dist.kl(dist),
        )

    first, second, logp, stored, kl = run(tf.zeros([200, N]))
    assert (first.numpy() != second.numpy()).any()
    np.testing.assert_allclose(logp, -N * np.log(2), rtol=1e-5)
    np.testing.assert_array_equal(logp, stored)
    np.testing.assert_array_equal(kl, 0)
