"""The categorical distribution against torch.distributions, exhaustive sums and one framework
against the other.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import CatalogError, StaleOutputError
from rlcatalog_tf import Categorical as TFCategorical
from rlcatalog_torch import Categorical as TorchCategorical

N, ROWS = 5, 7
LOGITS = np.random.default_rng(0).normal(0, 2, (ROWS, N)).astype(np.float32)
OTHER = np.random.default_rng(1).normal(0, 2, (ROWS, N)).astype(np.float32)
ALL = np.arange(N)
frameworks = pytest.mark.parametrize("cls", [TorchCategorical, TFCategorical], ids=["torch", "tf"])


def tensor(cls, array, dtype=None):
    if cls is TorchCategorical:
        made = torch.as_tensor(np.asarray(array))
        return made if dtype is None else made.to(getattr(torch, dtype))
    made = tf.convert_to_tensor(np.asarray(array))
    return made if dtype is None else tf.cast(made, dtype)


def array(value):
    """A tensor as an array; half precisions as float32."""
    if isinstance(value, torch.Tensor):
        return value.detach().float().numpy() if value.is_floating_point() else value.numpy()
    return tf.cast(value, tf.float32).numpy() if value.dtype.is_floating else value.numpy()


def make(cls, logits=LOGITS, **kwargs):
    return cls(tensor(cls, logits), None, **kwargs)


def truth(logits=LOGITS):
    return torch.distributions.Categorical(logits=torch.from_numpy(np.asarray(logits, np.float64)))


def seed(value):
    torch.manual_seed(value)
    tf.random.set_seed(value)


# --- densities ------------------------------------------------------------------------------------


@frameworks
def test_logp_is_that_of_torch_distributions(cls):
    for action in ALL:
        actions = np.full(ROWS, action)
        expected = truth().log_prob(torch.from_numpy(actions))
        np.testing.assert_allclose(
            array(make(cls).logp(tensor(cls, actions))), expected, rtol=1e-5, atol=1e-6
        )


@frameworks
def test_probabilities_sum_to_one(cls):
    total = sum(np.exp(array(make(cls).logp(tensor(cls, np.full(ROWS, action))))) for action in ALL)
    np.testing.assert_allclose(total, 1, rtol=1e-5)


@frameworks
def test_entropy_is_the_exhaustive_sum(cls):
    logp = np.stack(
        [array(make(cls).logp(tensor(cls, np.full(ROWS, action)))) for action in ALL]
    ).astype(np.float64)
    np.testing.assert_allclose(
        array(make(cls).entropy()), -(np.exp(logp) * logp).sum(axis=0), rtol=1e-5
    )
    np.testing.assert_allclose(array(make(cls).entropy()), truth().entropy(), rtol=1e-5)
    np.testing.assert_allclose(
        array(make(cls, np.zeros((2, N), np.float32)).entropy()), np.log(N), rtol=1e-6
    )


@frameworks
def test_kl_is_that_of_torch_distributions(cls):
    one, other = make(cls), make(cls, OTHER)
    expected = torch.distributions.kl_divergence(truth(), truth(OTHER))
    np.testing.assert_allclose(array(one.kl(other)), expected, rtol=1e-5)
    assert not np.allclose(array(one.kl(other)), array(other.kl(one)))
    np.testing.assert_allclose(array(one.kl(make(cls))), 0, atol=1e-6)


@frameworks
def test_the_distribution_has_one_component(cls):
    one, other = make(cls), make(cls, OTHER)
    np.testing.assert_array_equal(array(one.multi_entropy()), array(one.entropy()))
    np.testing.assert_array_equal(array(one.multi_kl(other)), array(one.kl(other)))
    assert cls.entropy_kind == "exact"


def test_the_frameworks_agree():
    one, other = make(TorchCategorical), make(TFCategorical)
    for action in ALL:
        actions = np.full(ROWS, action)
        np.testing.assert_allclose(array(one.logp(actions)), array(other.logp(actions)), atol=1e-5)
    np.testing.assert_allclose(array(one.entropy()), array(other.entropy()), atol=1e-5)
    np.testing.assert_allclose(
        array(one.kl(make(TorchCategorical, OTHER))),
        array(other.kl(make(TFCategorical, OTHER))),
        atol=1e-5,
    )
    np.testing.assert_array_equal(
        array(one.deterministic_sample()), array(other.deterministic_sample())
    )


# --- shapes and types -----------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_everything_is_one_number_per_row(cls, rows, n):
    dist = make(cls, LOGITS[:rows, :n])
    sample = dist.sample()
    assert tuple(sample.shape) == (rows,)
    assert array(sample).dtype == np.int64
    densities = dist.logp(sample), dist.sampled_action_logp()
    for value in (*densities, dist.entropy(), dist.kl(dist), dist.entropy_estimate()):
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype
    best = dist.deterministic_sample()
    assert tuple(best.shape) == (rows,)
    assert array(best).dtype == np.int64


@frameworks
def test_actions_may_come_in_any_form(cls):
    actions = np.array([0, 1, 2, 3, 4, 0, 1])
    expected = truth().log_prob(torch.from_numpy(actions))
    for form in (
        actions,
        actions[:, None],
        actions.astype(np.int32),
        actions.astype(np.float32),
        actions.tolist(),
    ):
        np.testing.assert_allclose(array(make(cls).logp(form)), expected, rtol=1e-5)
    np.testing.assert_allclose(
        array(make(cls).logp(tensor(cls, actions[:, None]))), expected, rtol=1e-5
    )


@frameworks
def test_logits_may_be_an_array_and_are_left_alone(cls):
    logits = LOGITS.copy()
    dist = cls(logits, None, temperature=3.0)
    dist.sample()
    array(dist.logp(np.zeros(ROWS, np.int64)))
    np.testing.assert_array_equal(logits, LOGITS)
    if cls is TorchCategorical:
        given = torch.from_numpy(LOGITS.copy())
        cls(given, None, temperature=3.0).entropy()
        np.testing.assert_array_equal(given, LOGITS)


@frameworks
def test_the_inputs_are_all_it_takes(cls):
    # What an engine stores and restores: inputs alone, temperature included.
    for dist in (make(cls), make(cls, temperature=0.5)):
        again = cls(tensor(cls, array(dist.inputs)))
        np.testing.assert_array_equal(array(again.log_probs), array(dist.log_probs))


# --- samples --------------------------------------------------------------------------------------

DRAWS = 20_000
FIXED = np.array([0.0, 1.0, -1.0, 2.0, -3.0], np.float32)


def goodness_of_fit(samples, logits):
    counts = np.bincount(samples, minlength=len(logits))
    return stats.chisquare(
        counts, len(samples) * special.softmax(np.asarray(logits, np.float64))
    ).pvalue


@frameworks
def test_samples_follow_the_probabilities(cls):
    seed(0)
    samples = array(make(cls, np.tile(FIXED, (DRAWS, 1))).sample())
    assert goodness_of_fit(samples, FIXED) > 1e-3
    assert goodness_of_fit(samples, FIXED + np.float32([0, 0.1, 0, 0, 0])) < 1e-3  # the control


@frameworks
@pytest.mark.parametrize("shift", [-1e3, 1e6, 2e7, 1e8])
def test_a_common_shift_of_the_logits_changes_nothing(cls, shift):
    logits = (
        np.array([0, 0, 16, 8], np.float32) / 8
        if abs(shift) < 1e7
        else np.array([0, 0, 0, 0], np.float32)
    )
    seed(1)
    shifted = logits + np.float32(shift)
    np.testing.assert_array_equal(shifted - np.float32(shift), logits)  # float32 holds them exactly
    dist = make(cls, np.tile(shifted, (DRAWS, 1)))
    assert goodness_of_fit(array(dist.sample()), logits) > 1e-3
    np.testing.assert_allclose(
        array(dist.entropy())[0], stats.entropy(special.softmax(logits)), rtol=1e-5
    )


@frameworks
def test_each_sample_is_fresh(cls):
    seed(2)
    dist = make(cls, np.zeros((200, 50), np.float32))
    samples = [array(dist.sample()) for _ in range(4)]
    for one, other in itertools.combinations(samples, 2):
        assert (one == other).mean() < 0.2


def test_each_sample_is_fresh_inside_a_trace():
    @tf.function
    def draw(logits):
        dist = TFCategorical(logits)
        return dist.sample(), dist.sample(), dist.sampled_action_logp()

    seed(3)
    logits = tf.zeros([200, 50])
    first, second, logp = draw(logits)
    third, *_ = draw(logits)
    for one, other in itertools.combinations((first, second, third), 2):
        assert (array(one) == array(other)).mean() < 0.2
    np.testing.assert_allclose(array(logp), -np.log(50), rtol=1e-5)
    samples = array(draw(tf.constant(np.tile(FIXED, (DRAWS, 1))))[0])
    assert goodness_of_fit(samples, FIXED) > 1e-3


@frameworks
def test_a_seed_repeats_a_sample(cls):
    seed(4)
    one = array(make(cls).sample())
    seed(4)
    np.testing.assert_array_equal(array(make(cls).sample()), one)


@frameworks
def test_the_logp_of_the_last_sample(cls):
    dist = make(cls)
    with pytest.raises(StaleOutputError, match=r"call sample\(\) before sampled_action_logp\(\)"):
        dist.sampled_action_logp()
    for draw in (dist.sample, dist.deterministic_sample, dist.sample):
        sample = draw()
        np.testing.assert_array_equal(array(dist.last_sample), array(sample))
        np.testing.assert_array_equal(array(dist.sampled_action_logp()), array(dist.logp(sample)))


def test_a_sample_changed_in_place_is_scored_as_it_is():
    dist = make(TorchCategorical)
    sample = dist.sample()
    sample.fill_(2)
    np.testing.assert_allclose(
        dist.logp(sample), truth().log_prob(torch.full((ROWS,), 2)), rtol=1e-5
    )


@frameworks
def test_the_most_likely_action(cls):
    np.testing.assert_array_equal(array(make(cls).deterministic_sample()), LOGITS.argmax(axis=1))


@frameworks
def test_the_estimate_of_the_entropy_is_unbiased(cls):
    seed(5)
    estimates = array(make(cls, np.tile(FIXED, (DRAWS, 1))).entropy_estimate())
    exact = stats.entropy(special.softmax(FIXED.astype(np.float64)))
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / np.sqrt(DRAWS)


# --- temperature ----------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0, 100.0])
def test_temperature_divides_the_logits(cls, temperature):
    dist = make(cls, temperature=temperature)
    expected = truth(LOGITS.astype(np.float64) / temperature)
    np.testing.assert_allclose(array(dist.entropy()), expected.entropy(), rtol=1e-4, atol=1e-6)
    actions = np.arange(ROWS) % N
    np.testing.assert_allclose(
        array(dist.logp(actions)), expected.log_prob(torch.from_numpy(actions)), rtol=1e-4
    )
    np.testing.assert_array_equal(array(dist.deterministic_sample()), LOGITS.argmax(axis=1))


@frameworks
@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(cls, temperature):
    with pytest.raises(ValueError, match="temperature must be positive, found") as caught:
        make(cls, temperature=temperature)
    assert isinstance(caught.value, CatalogError)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -1e-6]


@frameworks
def test_extreme_logits_give_finite_numbers(cls):
    logits = np.array(list(itertools.product(EXTREMES, repeat=3)), np.float32)
    dist = make(cls, logits)
    seed(6)
    for sample in (dist.sample(), dist.deterministic_sample()):
        drawn = array(sample)
        assert ((drawn >= 0) & (drawn < 3)).all()
        assert np.isfinite(array(dist.logp(sample))).all()
    expected = special.log_softmax(logits.astype(np.float64), axis=1)
    for action in range(3):
        found = array(dist.logp(np.full(len(logits), action)))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected[:, action], rtol=1e-5, atol=1e-5)
    entropy = array(dist.entropy())
    np.testing.assert_allclose(
        entropy, -(np.exp(expected) * expected).sum(axis=1), rtol=1e-5, atol=1e-5
    )
    assert np.isfinite(array(dist.kl(make(cls, logits[::-1].copy())))).all()
    # A lead of 1e8 leaves the others no chance.
    clear = np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2] > 1e6
    np.testing.assert_array_equal(array(dist.sample())[clear], logits.argmax(axis=1)[clear])


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_are_those_of_finite_differences():
    actions = torch.arange(ROWS) % N
    fixed = torch.from_numpy(OTHER.astype(np.float64))
    logits = torch.from_numpy(LOGITS.astype(np.float64)).requires_grad_()
    for function in (
        lambda x: TorchCategorical(x).logp(actions),
        lambda x: TorchCategorical(x).entropy(),
        lambda x: TorchCategorical(x).kl(TorchCategorical(fixed)),
        lambda x: TorchCategorical(fixed).kl(TorchCategorical(x)),
        lambda x: TorchCategorical(x, temperature=2.0).entropy(),
    ):
        assert torch.autograd.gradcheck(function, (logits,))


def test_gradients_in_tensorflow_are_pytorchs():
    actions = np.arange(ROWS) % N
    for name, one in {
        "logp": lambda d, o: d.logp(actions),
        "entropy": lambda d, o: d.entropy(),
        "kl": lambda d, o: d.kl(o),
        "reverse kl": lambda d, o: o.kl(d),
    }.items():
        logits = torch.from_numpy(LOGITS.copy()).requires_grad_()
        one(TorchCategorical(logits), make(TorchCategorical, OTHER)).sum().backward()
        variable = tf.Variable(LOGITS)
        with tf.GradientTape() as tape:
            value = one(TFCategorical(variable), make(TFCategorical, OTHER))
        np.testing.assert_allclose(
            tape.gradient(value, variable).numpy(), logits.grad.numpy(), atol=1e-5, err_msg=name
        )


# --- masks ----------------------------------------------------------------------------------------

MASKS = np.array(
    [
        [c == "1" for c in row]
        for row in ["10110", "00001", "11111", "01100", "11011", "01001", "10000"]
    ]
)
PRECISION = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
precisions = pytest.mark.parametrize("dtype", PRECISION)


def masked(cls, logits, mask=MASKS, dtype="float32"):
    return cls(cls.masked(tensor(cls, logits, dtype), tensor(cls, mask)))


def over_allowed(cls, logits, dtype):
    """Entropy of each row, and log probabilities, over the allowed actions alone, in float64."""
    exact = array(tensor(cls, logits, dtype)).astype(np.float64)  # as the dtype holds them
    logp = [special.log_softmax(row[mask]) for row, mask in zip(exact, MASKS, strict=True)]
    return np.array([-(np.exp(row) * row).sum() for row in logp]), logp


@frameworks
@precisions
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_a_masked_distribution_is_the_one_over_the_allowed_actions(cls, dtype, scale):
    logits, others = scale * LOGITS, scale * OTHER
    dist, other = masked(cls, logits, dtype=dtype), masked(cls, others, dtype=dtype)
    entropy, logp = over_allowed(cls, logits, dtype)
    _, other_logp = over_allowed(cls, others, dtype)
    kl = [(np.exp(p) * (p - q)).sum() for p, q in zip(logp, other_logp, strict=True)]
    near = {"rtol": PRECISION[dtype], "atol": PRECISION[dtype] * max(1, scale / 4)}
    np.testing.assert_allclose(array(dist.entropy()), entropy, **near)
    np.testing.assert_allclose(array(dist.kl(other)), kl, **near)
    for action in ALL:
        found = array(dist.logp(np.full(ROWS, action)))
        assert np.isfinite(found).all()
        for row, value in enumerate(found):
            if MASKS[row, action]:
                np.testing.assert_allclose(value, logp[row][MASKS[row, :action].sum()], **near)
            else:
                assert value < -6e4


@frameworks
@precisions
def test_everything_stays_finite_under_a_mask(cls, dtype):
    # The largest logits that leave the sum of two of them in range.
    big = {"float32": 1.1e34, "float16": 3e4, "bfloat16": 1.1e34}[dtype]
    rows = np.array(list(itertools.product([0.0, 40.0, -40.0, big, -big], repeat=2)), np.float32)
    logits = np.concatenate([rows, np.zeros((len(rows), 1), np.float32)], axis=1)
    mask = np.tile([True, True, False], (len(rows), 1))
    dist, other = masked(cls, logits, mask, dtype), masked(cls, logits[::-1].copy(), mask, dtype)
    for value in (
        dist.entropy(),
        dist.kl(dist),
        *(dist.logp(np.full(len(rows), a)) for a in range(3)),
    ):
        assert np.isfinite(array(value)).all()
    assert not np.isnan(array(dist.kl(other))).any()
    assert (array(dist.sample()) < 2).all()


@frameworks
@precisions
def test_forbidden_actions_are_never_drawn(cls, dtype):
    seed(7)
    logits, mask = np.tile(LOGITS, (3000, 1)), np.tile(MASKS, (3000, 1))
    logits = np.where(mask, logits, 50)  # however likely they were
    dist = masked(cls, logits, mask, dtype)
    for sample in (dist.sample(), dist.sample(), dist.deterministic_sample()):
        assert mask[np.arange(len(mask)), array(sample)].all()
    # The control: without the mask they are drawn.
    assert not mask[np.arange(len(mask)), array(cls(tensor(cls, logits, dtype)).sample())].all()


@frameworks
def test_a_mask_is_baked_into_the_inputs(cls):
    dist = masked(cls, LOGITS)
    lowest = np.finfo(np.float32).min
    np.testing.assert_array_equal(array(dist.inputs), np.where(MASKS, LOGITS, lowest))
    again = cls(tensor(cls, array(dist.inputs)))
    np.testing.assert_array_equal(array(again.log_probs), array(dist.log_probs))


@frameworks
def test_a_mask_in_gymnasiums_own_type(cls):
    # Gymnasium's masks are int8.
    found = cls.masked(tensor(cls, LOGITS), tensor(cls, MASKS.astype(np.int8)))
    np.testing.assert_array_equal(array(found), array(masked(cls, LOGITS).inputs))


@frameworks
def test_gradients_under_a_mask_are_finite_and_zero_where_forbidden(cls):
    for function in (
        lambda d: d.entropy(),
        lambda d: d.logp(MASKS.argmax(axis=1)),
        lambda d: d.kl(make(cls, OTHER)),
    ):
        if cls is TorchCategorical:
            logits = torch.from_numpy(LOGITS.copy()).requires_grad_()
            function(cls(cls.masked(logits, torch.from_numpy(MASKS)))).sum().backward()
            gradient = logits.grad.numpy()
        else:
            variable = tf.Variable(LOGITS)
            with tf.GradientTape() as tape:
                value = function(cls(cls.masked(variable, tf.constant(MASKS))))
            gradient = tape.gradient(value, variable).numpy()
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient[~MASKS], 0)
        assert np.abs(gradient[MASKS]).sum() > 0


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchCategorical), ("tf", TFCategorical)])
def test_the_catalog_finds_it(framework, cls):
    assert ModelCatalog.get_action_dist(spaces.Discrete(6, start=3), {}, framework=framework) == (
        cls,
        6,
    )
    assert cls.required_model_output_shape(spaces.Discrete(6, start=3), {}) == 6
    assert cls.framework_of_class == framework


@frameworks
def test_another_space_is_refused_with_a_typed_error(cls):
    with pytest.raises(CatalogError, match="Discrete"):
        cls.required_model_output_shape(spaces.Box(-1, 1, (2,)), {})


def test_named_for_another_space_it_is_refused():
    box = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(CatalogError, match="Discrete"):
        build(box, box, {"custom_action_dist": "categorical"})
