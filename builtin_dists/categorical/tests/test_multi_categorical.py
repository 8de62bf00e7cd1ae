"""Several choices at once against torch.distributions, exhaustive sums and one framework against
the other.
"""

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

RAGGED, EQUAL = (3, 2, 4), (3, 3, 3)
ROWS = 7
RNG = np.random.default_rng(0)
LOGITS, OTHER = RNG.normal(0, 2, (2, ROWS, 9)).astype(np.float32)
MASK = RNG.random((ROWS, 9)) < 0.6
MASK[:, [1, 3, 8]] = True  # something is allowed in every choice of both
both_lens = pytest.mark.parametrize("lens", [RAGGED, EQUAL], ids=["ragged", "equal"])
PRECISION = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}


def multi(kit, logits=LOGITS, lens=RAGGED, dtype=None, **kwargs):
    return kit.load("MultiCategorical")(kit.tensor(logits, dtype), None, lens, **kwargs)


def parts(array, lens):
    return np.split(np.asarray(array, np.float64), np.cumsum(lens)[:-1], axis=1)


def truths(logits, lens, mask=None):
    if mask is not None:
        logits = np.where(mask, np.asarray(logits, np.float64), -np.inf)
    return [
        torch.distributions.Categorical(logits=torch.from_numpy(p)) for p in parts(logits, lens)
    ]


def every(lens):
    return np.array(list(itertools.product(*map(range, lens))))


def scores(kit, dist, actions):
    """logp of each of some actions in every row, `[A, B]`."""
    return np.stack(
        [kit.array(dist.logp(kit.tensor(np.tile(a, (dist.inputs.shape[0], 1))))) for a in actions]
    )


@both_lens
def test_logp_is_that_of_torch_distributions(kit, lens):
    actions = every(lens)
    expected = [
        sum(
            d.log_prob(torch.full((ROWS,), int(v)))
            for d, v in zip(truths(LOGITS, lens), a, strict=True)
        )
        for a in actions
    ]
    found = scores(kit, multi(kit, lens=lens), actions)
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(axis=0), 1, rtol=1e-5)


@both_lens
def test_entropy_and_kl_are_those_of_torch_distributions_and_exhaustive_sums(kit, lens):
    one, other = multi(kit, lens=lens), multi(kit, OTHER, lens)
    entropies = np.stack([d.entropy() for d in truths(LOGITS, lens)], axis=1)
    kls = np.stack(
        [
            torch.distributions.kl_divergence(d, e)
            for d, e in zip(truths(LOGITS, lens), truths(OTHER, lens), strict=True)
        ],
        axis=1,
    )
    np.testing.assert_allclose(kit.array(one.multi_entropy()), entropies, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kit.array(one.entropy()), entropies.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(kit.array(one.multi_kl(other)), kls, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kit.array(one.kl(other)), kls.sum(axis=1), rtol=1e-5)
    logp, other_logp = (scores(kit, d, every(lens)).astype(np.float64) for d in (one, other))
    np.testing.assert_allclose(
        kit.array(one.entropy()), -(np.exp(logp) * logp).sum(axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(
        kit.array(one.kl(other)), (np.exp(logp) * (logp - other_logp)).sum(axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(kit.array(one.kl(multi(kit, lens=lens))), 0, atol=1e-6)


@both_lens
@pytest.mark.parametrize("dtype", PRECISION)
def test_under_a_mask_all_is_that_of_the_allowed_values_alone(kit, lens, dtype):
    cls = kit.load("MultiCategorical")
    one, other = (
        cls(cls.masked(kit.tensor(x, dtype), kit.tensor(MASK), input_lens=lens), None, lens)
        for x in (LOGITS, OTHER)
    )
    near = {"rtol": PRECISION[dtype], "atol": 4 * PRECISION[dtype]}
    exact = [kit.array(kit.tensor(x, dtype)) for x in (LOGITS, OTHER)]
    entropy = kl = 0
    for p, q in zip(truths(exact[0], lens, MASK), truths(exact[1], lens, MASK), strict=True):
        probs = p.probs.numpy()
        entropy = entropy - special.xlogy(probs, probs).sum(axis=1)
        kl = kl + special.rel_entr(probs, q.probs.numpy()).sum(axis=1)
    np.testing.assert_allclose(kit.array(one.entropy()), entropy, **near)
    np.testing.assert_allclose(kit.array(one.kl(other)), kl, **near)
    logp = scores(kit, one, every(lens))
    assert np.isfinite(logp).all()
    allowed = np.stack(
        [
            np.all([m[:, v] for m, v in zip(parts(MASK, lens), a, strict=True)], axis=0)
            for a in every(lens)
        ]
    )
    assert (logp[~allowed] < -6e4).all()
    assert (logp[allowed] > -100).all()
    np.testing.assert_allclose(
        np.where(allowed, np.exp(logp), 0).sum(axis=0), 1, rtol=20 * PRECISION[dtype]
    )


@pytest.mark.grid
@both_lens
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_forbidden_value_is_drawn_in_a_million(kit, lens, dtype):
    kit.seed(0)
    cls, k = kit.load("MultiCategorical"), len(lens)
    times = 10**6 // (ROWS * k) + 1
    logits = np.tile(np.where(MASK, LOGITS, 50), (times, 1))  # however likely they were
    inputs = cls.masked(kit.tensor(logits, dtype), kit.tensor(np.tile(MASK, (times, 1))))
    drawn = kit.array(cls(inputs, None, lens).sample())
    assert drawn.size >= 10**6
    for place, (allowed, n) in enumerate(zip(parts(MASK, lens), lens, strict=True)):
        counts = np.stack(
            [np.bincount(drawn[row::ROWS, place], minlength=n) for row in range(ROWS)]
        )
        assert counts.shape == (ROWS, n)
        np.testing.assert_array_equal(counts[allowed == 0], 0)


def test_padding_is_never_drawn_even_where_a_mask_allows_nothing(kit):
    kit.seed(1)
    cls = kit.load("MultiCategorical")
    inputs = cls.masked(
        kit.tensor(np.tile(LOGITS, (2000, 1))), kit.tensor(np.zeros((2000 * ROWS, 9), bool))
    )
    dist = cls(inputs, None, RAGGED)
    for sample in (dist.sample(), dist.deterministic_sample()):
        assert (kit.array(sample) < np.array(RAGGED)).all()
    for value in (dist.entropy(), dist.kl(dist), dist.sampled_action_logp()):
        assert np.isfinite(kit.array(value)).all()


@both_lens
def test_samples_follow_the_probabilities(kit, lens):
    kit.seed(2)
    draws = 20_000
    samples = kit.array(multi(kit, np.tile(LOGITS[:1], (draws, 1)), lens).sample())
    for place, logits in enumerate(parts(LOGITS[:1], lens)):
        counts = np.bincount(samples[:, place], minlength=lens[place])
        assert stats.chisquare(counts, draws * special.softmax(logits[0])).pvalue > 1e-3
        wrong = special.softmax(logits[0] + np.arange(lens[place]) * 0.2)
        assert stats.chisquare(counts, draws * wrong).pvalue < 1e-3  # the control
    joint = np.ravel_multi_index(samples.T, lens)
    expected = np.exp(
        scores(kit, multi(kit, LOGITS[:1], lens), every(lens))[:, 0].astype(np.float64)
    )
    likely = expected * draws > 5
    kept = np.bincount(joint, minlength=len(expected))[likely]
    assert (
        stats.chisquare(kept, kept.sum() * expected[likely] / expected[likely].sum()).pvalue > 1e-3
    )


@both_lens
def test_gradients_are_those_of_finite_differences(kit, lens):
    cls = kit.load("MultiCategorical")
    at, other = LOGITS[:2].astype(np.float64), kit.tensor(OTHER[:2].astype(np.float64))
    actions = np.array([[1, 0, 2], [2, 1, 0]])
    for function in (
        lambda d: d.logp(kit.tensor(actions)),
        lambda d: d.entropy(),
        lambda d: d.kl(cls(other, None, lens)),
        lambda d: cls(other, None, lens).kl(d),
    ):
        for mask in (np.ones((2, 9), bool), MASK[:2]):

            def value(x, function=function, mask=mask):
                return function(cls(cls.masked(x, kit.tensor(mask)), None, lens))

            if mask.all():
                np.testing.assert_allclose(
                    kit.gradient(value, at), kit.numeric_gradient(value, at), atol=1e-7
                )
            found = kit.gradient(value, at)
            assert np.isfinite(found).all()
            np.testing.assert_array_equal(found[~mask], 0)


@both_lens
@pytest.mark.parametrize("rows", [1, 7])
def test_nothing_broadcasts(kit, lens, rows):
    dist = multi(kit, LOGITS[:rows], lens)
    k = len(lens)
    for draw in (dist.sample, dist.deterministic_sample):
        sample = draw()
        assert kit.array(sample).dtype == np.int64
        assert tuple(sample.shape) == (rows, k)
        np.testing.assert_array_equal(kit.array(dist.last_sample), kit.array(sample))
        np.testing.assert_allclose(
            kit.array(dist.sampled_action_logp()),
            kit.array(dist.logp(kit.array(sample))),
            rtol=1e-5,
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
        assert tuple(value.shape) == (rows, k)


def test_each_sample_is_fresh(kit):
    dist = multi(kit, np.zeros((500, 9), np.float32), EQUAL)
    one, other = kit.array(dist.sample()), kit.array(dist.sample())
    assert 0.25 < (one == other).mean() < 0.42


def test_actions_may_come_in_any_form(kit):
    logits = RNG.normal(size=(ROWS, 12)).astype(np.float32)
    dist = multi(kit, logits, (2, 4, 3, 3))
    actions = RNG.integers(0, 2, (ROWS, 4))
    expected = sum(
        d.log_prob(torch.from_numpy(a))
        for d, a in zip(truths(logits, (2, 4, 3, 3)), actions.T, strict=True)
    )
    lists = [kit.tensor(column) for column in actions.T]
    for form in (
        actions,
        actions.astype(np.float32),
        kit.tensor(actions),
        kit.tensor(actions.astype(np.float32)),
        kit.tensor(actions, "bfloat16"),
        actions.astype(np.uint8),
        actions.tolist(),
        actions.reshape(ROWS, 2, 2),
        lists,
        tuple(lists),
        [column[:, None] for column in actions.T],
        list(actions.T),
    ):
        np.testing.assert_allclose(kit.array(dist.logp(form)), expected, rtol=1e-5)


def test_a_list_of_as_many_tensors_as_rows_is_one_tensor_per_choice(kit):
    dist = multi(kit, LOGITS[:3], RAGGED)
    actions = np.array([[2, 1, 3], [0, 1, 0], [1, 0, 2]])
    np.testing.assert_array_equal(
        kit.array(dist.logp(list(actions.T))), kit.array(dist.logp(actions))
    )


@pytest.mark.parametrize(
    "actions", [np.zeros((3, ROWS)), np.zeros((ROWS, 2)), np.zeros(3), np.zeros((1, 3))]
)
def test_actions_of_a_wrong_shape_are_refused(kit, actions):
    with pytest.raises(
        ModelContractError, match=r"expected actions \[7, 3\], or a list of 3 tensors \[7\]"
    ):
        multi(kit).logp(kit.tensor(actions))


def test_the_lens_may_come_in_any_form(kit):
    expected = kit.array(multi(kit).entropy())
    for lens in (
        list(RAGGED),
        np.array(RAGGED),
        np.array(RAGGED, np.int32),
        tuple(np.array(RAGGED)),
    ):
        np.testing.assert_array_equal(kit.array(multi(kit, lens=lens).entropy()), expected)
    space = spaces.MultiDiscrete(RAGGED, start=[5, 0, -3])
    np.testing.assert_array_equal(
        kit.array(multi(kit, lens=None, action_space=space).entropy()), expected
    )


def test_wrong_arguments_are_refused(kit):
    with pytest.raises(
        ConfigError,
        match=r"needs input_lens \(the number of values of each choice\) or action_space",
    ):
        multi(kit, lens=None)
    with pytest.raises(ConfigError, match=r"each at least 1; found \(9, 0\)"):
        multi(kit, lens=(9, 0))
    with pytest.raises(ModelContractError, match=r"requires inputs \[B, 5\], found \(7, 9\)"):
        multi(kit, lens=(3, 2))
    with pytest.raises(ModelContractError, match="input_lens differ"):
        multi(kit).kl(multi(kit, lens=EQUAL))
    with pytest.raises(ModelContractError, match="expects another MultiCategorical"):
        multi(kit).kl(kit.load("Bernoulli")(kit.tensor(LOGITS)))


EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1e-6]


@pytest.mark.parametrize("dtype", PRECISION)
def test_extreme_logits_give_finite_numbers(kit, dtype):
    rows = np.array(list(itertools.product(EXTREMES, repeat=3)), np.float64)
    if dtype == "float16":
        rows = np.clip(rows, -3e4, 3e4)
    logits = np.concatenate([rows, rows[::-1], np.full((len(rows), 1), -np.inf)], axis=1)
    lens = (2, 1, 4)
    dist, other = multi(kit, logits, lens, dtype), multi(kit, logits[::-1].copy(), lens, dtype)
    for sample in (dist.sample(), dist.deterministic_sample()):
        assert (kit.array(sample) < [2, 1, 3]).all()
        assert np.isfinite(kit.array(dist.logp(sample))).all()
    for value in (
        dist.entropy(),
        dist.kl(other),
        dist.kl(dist),
        dist.logp(np.tile([0, 0, 3], (len(rows), 1))),
    ):
        assert np.isfinite(kit.array(value)).all()
    gradient = kit.gradient(lambda x: kit.load("MultiCategorical")(x, None, lens).entropy(), logits)
    assert np.isfinite(gradient).all()


def test_the_frameworks_agree(kits):
    actions = np.tile([2, 1, 3], (ROWS, 1))
    found = []
    for kit in kits:
        dist = multi(kit)
        values = (
            dist.logp(actions),
            dist.multi_entropy(),
            dist.multi_kl(multi(kit, OTHER)),
            dist.deterministic_sample(),
        )
        found.append([kit.array(value) for value in values])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_what_is_stored_gives_the_same_numbers(kit):
    cls = kit.load("MultiCategorical")
    dist = cls(cls.masked(kit.tensor(LOGITS), kit.tensor(MASK)), None, RAGGED)
    stored = kit.array(dist.sample()).astype(np.float32)
    again = multi(kit, kit.array(dist.inputs))
    np.testing.assert_array_equal(
        kit.array(again.logp(stored)), kit.array(dist.sampled_action_logp())
    )
    np.testing.assert_array_equal(kit.array(again.entropy()), kit.array(dist.entropy()))


def test_the_inputs_are_left_alone(kit):
    given = kit.tensor(LOGITS.copy())
    dist = kit.load("MultiCategorical")(given, None, RAGGED)
    dist.sample(), dist.entropy(), dist.kl(dist)
    np.testing.assert_array_equal(kit.array(given), LOGITS)
    assert dist.inputs is given


def test_what_is_remembered_while_acting_serves_in_training():
    from rlcatalog_categorical.torch import MultiCategorical

    lens = (2, 5, 7)  # used nowhere else
    with torch.inference_mode():
        MultiCategorical(torch.zeros(1, 14), None, lens).sample()
    inputs = torch.zeros(1, 14, requires_grad=True)
    MultiCategorical(inputs, None, lens).entropy().sum().backward()
    assert inputs.grad is not None


def test_it_can_be_traced_with_an_unknown_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import MultiCategorical

    @tf.function(input_signature=[tf.TensorSpec([None, 9], tf.float32)])
    def run(inputs):
        dist = MultiCategorical(inputs, None, RAGGED)
        sample = dist.sample()
        return (
            sample,
            dist.sample(),
            dist.logp(sample),
            dist.logp(tf.cast(sample, tf.float32)),
            dist.kl(dist),
        )

    for rows in (300, 1):
        first, second, logp, stored, kl = run(tf.zeros([rows, 9]))
        assert first.shape == (rows, 3)
        np.testing.assert_allclose(logp, -np.log(24), rtol=1e-5)
        np.testing.assert_array_equal(logp, stored)
        np.testing.assert_allclose(kl, 0, atol=1e-6)
        assert rows == 1 or (first.numpy() != second.numpy()).any()


# --- spaces ---------------------------------------------------------------------------------------

BOX_LENS = [
    (spaces.Box(np.array([0, -3]), np.array([1, 4]), dtype=np.int32), (2, 8)),
    (spaces.Box(0, 3, (2, 2), np.uint8), (4,) * 4),
    (spaces.Box(0, 255, (), np.uint8), (256,)),
    (spaces.Box(np.array([[-2], [7]]), np.array([[-2], [9]]), dtype=np.int64), (1, 3)),
    (spaces.Box(0, 1, (3,), bool), (2, 2, 2)),
    (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), (2, 3, 4, 5)),
    (spaces.MultiDiscrete([4, 2]), (4, 2)),
]


@pytest.mark.parametrize(
    ("space", "lens"), BOX_LENS, ids=lambda value: str(value) if isinstance(value, tuple) else ""
)
def test_each_value_of_a_space_counts_its_own_range(kit, space, lens):
    cls = kit.load("MultiCategorical")
    assert cls.required_model_output_shape(space, {}) == sum(lens)
    assert type(cls.required_model_output_shape(space, {})) is int
    assert cls.options_for(SpaceInfo.read(space, "action"), {}) == {"input_lens": lens}


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (
            spaces.Box(-np.inf, np.inf, (2,), np.int16),
            "action: MultiCategorical needs a lower and an upper bound",
        ),
        (
            spaces.Box(0, 50_000, (2,), np.int32),
            "would need 100,002 logits, more than 100,000; narrow its bounds",
        ),
        (
            spaces.Box(np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max - 1, (1,), np.int64),
            "more than 100,000",
        ),
        (spaces.Box(0, 1, (2,)), "requires a MultiDiscrete or a Box of integers, found"),
        (spaces.MultiDiscrete([99_999, 2]), "would need 100,001 logits"),
    ],
)
def test_a_space_without_a_fair_number_of_values_is_refused(space, says):
    with pytest.raises(UnsupportedSpaceError, match=says) as caught:
        input_lens(SpaceInfo.read(space, "action"))
    assert isinstance(caught.value, CatalogError)
