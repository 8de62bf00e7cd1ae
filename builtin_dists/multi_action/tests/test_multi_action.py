"""The distribution of Tuple and Dict spaces against torch.distributions, exhaustive sums and the
other framework.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import ModelCatalog, TupleActions
from rlcatalog.errors import (
    ModelContractError,
    NoClosedFormError,
    StaleOutputError,
    UnsupportedSpaceError,
)
from rlcatalog_tf import (
    Categorical as TFCategorical,
    DiagGaussian as TFGaussian,
    MultiActionDistribution as TFMulti,
)
from rlcatalog_torch import (
    Categorical as TorchCategorical,
    DiagGaussian as TorchGaussian,
    MultiActionDistribution as TorchMulti,
)

frameworks = pytest.mark.parametrize("fw", ["torch", "tf"])
CLASSES = {"torch": TorchMulti, "tf": TFMulti}
LEAVES = {"torch": (TorchCategorical, TorchGaussian), "tf": (TFCategorical, TFGaussian)}

# Three levels; the keys are not sorted.
INNER = spaces.Dict(
    [
        ("z", spaces.Discrete(4)),
        ("a", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(2)])),
    ]
)
SPACE = spaces.Tuple([spaces.Discrete(5, start=2), spaces.Box(-1, 1, (2, 2), np.float32), INNER])
LENS, WIDTHS = (5, 8, 4, 5, 2), (1, 4, 1, 2, 1)
ROWS, SIZE, WIDTH = 7, sum(LENS), sum(WIDTHS)
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(0, 1, (ROWS, SIZE)).astype(np.float32)
OTHER = RANDOM.normal(0, 1, (ROWS, SIZE)).astype(np.float32)
FLAT = np.concatenate(
    [
        RANDOM.integers(0, 5, (ROWS, 1)),
        RANDOM.normal(0, 1, (ROWS, 4)),
        RANDOM.integers(0, 4, (ROWS, 1)),
        RANDOM.integers(0, 2, (ROWS, 1)),
        RANDOM.integers(0, 3, (ROWS, 1)),
        RANDOM.integers(0, 2, (ROWS, 1)),
    ],
    axis=1,
).astype(np.float32)
# The small space of which every action is listed.
SMALL = spaces.Dict(
    [
        ("x", spaces.Discrete(3)),
        ("b", spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])),
    ]
)
ALL = np.array(list(itertools.product(range(3), range(2), range(2), range(3))))


def tensor(fw, value):
    return torch.from_numpy(np.array(value)) if fw == "torch" else tf.constant(value)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


@functools.cache
def served(fw, name="SPACE"):
    return ModelCatalog.get_action_dist(globals()[name], {}, framework=fw)


def make(fw, inputs=INPUTS, name="SPACE"):
    return served(fw, name)[0](tensor(fw, inputs))


def structure(fw, flat=FLAT):
    part = lambda *places: tensor(fw, flat[:, list(places)])  # noqa: E731
    whole = lambda place: tensor(fw, flat[:, place].astype(np.int64))  # noqa: E731
    return whole(0), part(1, 2, 3, 4), {"z": whole(5), "a": (part(6, 7), whole(8))}


def truth(inputs=INPUTS):
    """torch.distributions of the leaves, in double precision."""
    parts = np.split(np.asarray(inputs, np.float64), np.cumsum(LENS)[:-1], axis=1)
    one = lambda logits: torch.distributions.Categorical(logits=torch.from_numpy(logits))  # noqa: E731
    mean, log_std = np.split(parts[1], 2, axis=1)
    normal = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(np.exp(log_std)))
    return [
        one(parts[0]),
        torch.distributions.Independent(normal, 1),
        one(parts[2]),
        one(parts[3][:, :2]),
        one(parts[3][:, 2:]),
        one(parts[4]),
    ]


def true_logps(flat=FLAT):
    columns = [flat[:, 0], flat[:, 1:5], flat[:, 5], flat[:, 6], flat[:, 7], flat[:, 8]]
    pairs = zip(truth(), columns, strict=True)
    return torch.stack(
        [dist.log_prob(torch.from_numpy(x.astype(np.float64))) for dist, x in pairs], dim=1
    )


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(array(found), expected, rtol=tolerance, atol=tolerance)


def leaves_of(sample):
    values = sample.values() if isinstance(sample, dict) else sample
    return [leaf for v in values for leaf in (leaves_of(v) if isinstance(v, dict | tuple) else [v])]


# --- densities ------------------------------------------------------------------------------------


@frameworks
def test_logp_is_the_sum_over_the_leaves(fw):
    close(make(fw).logp(tensor(fw, FLAT)), true_logps().sum(dim=1))


@frameworks
def test_every_form_of_actions_gives_the_same_logp(fw):
    dist, expected = make(fw), true_logps().sum(dim=1)
    first, box, inner = structure(fw)
    shuffled = {"a": list(inner["a"]), "z": inner["z"]}
    for form in (
        FLAT,
        FLAT.astype(np.float64),
        # Rounded where numbers are whole.
        FLAT + np.float32([0.2, 0, 0, 0, 0, -0.2, 0.1, -0.1, 0.3]),
        (first, box, inner),
        [first, box, shuffled],
        (first, tensor(fw, FLAT[:, 1:5].reshape(ROWS, 2, 2)), shuffled),
        (
            array(first)[:, None],
            array(box),
            {"z": array(inner["z"]).astype(np.float32), "a": inner["a"]},
        ),
        TupleActions([first, box, inner]),
        [first, box, inner["z"], *inner["a"]],
        dist.split(FLAT),
        dist.join((first, box, shuffled)),
    ):
        found = dist.logp(form)
        assert tuple(found.shape) == (ROWS,)
        close(found, expected)


@frameworks
def test_entropy_and_kl_are_sums_over_the_leaves(fw):
    dist, other = make(fw), make(fw, OTHER)
    entropies = torch.stack([part.entropy() for part in truth()], dim=1)
    pairs = zip(truth(), truth(OTHER), strict=True)
    kls = torch.stack([torch.distributions.kl_divergence(p, q) for p, q in pairs], dim=1)
    for single, several, expected in (
        (dist.entropy(), dist.multi_entropy(), entropies),
        (dist.kl(other), dist.multi_kl(other), kls),
    ):
        close(single, expected.sum(dim=1))
        by_child = torch.stack([expected[:, 0], expected[:, 1], expected[:, 2:].sum(dim=1)], dim=1)
        close(several, by_child)
    assert dist.entropy_kind == "exact"
    close(dist.entropy_estimate(), entropies.sum(dim=1))  # what is exact is not estimated


@frameworks
def test_the_probabilities_of_all_joint_actions_sum_to_one(fw):
    inputs = np.tile(RANDOM.normal(0, 2, 10).astype(np.float32), (len(ALL), 1))
    dist = make(fw, inputs, "SMALL")
    logp = array(dist.logp(ALL)).astype(np.float64)
    np.testing.assert_allclose(np.exp(logp).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(array(dist.entropy())[0], -(np.exp(logp) * logp).sum(), rtol=1e-5)


def test_the_frameworks_agree():
    one, other = make("torch"), make("tf")
    for found, expected in (
        (one.logp(FLAT), other.logp(FLAT)),
        (one.entropy(), other.entropy()),
        (one.multi_entropy(), other.multi_entropy()),
        (one.kl(make("torch", OTHER)), other.kl(make("tf", OTHER))),
        *zip(
            leaves_of(one.deterministic_sample()),
            leaves_of(other.deterministic_sample()),
            strict=True,
        ),
    ):
        close(found, array(expected))


@frameworks
def test_a_leaf_without_closed_form_is_estimated_and_the_others_are_not(fw):
    class Estimated(LEAVES[fw][1]):
        entropy_kind = "estimate"

        def entropy(self):
            raise NoClosedFormError("none")

        def entropy_estimate(self):
            return 0 * LEAVES[fw][1].entropy(self) + 3

    categorical, _ = LEAVES[fw]
    space = spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (1,))])
    inputs = tensor(fw, INPUTS[:, :7])
    dist = CLASSES[fw](
        inputs, child_distributions=[categorical, Estimated], input_lens=[5, 2], action_space=space
    )
    assert dist.entropy_kind == "estimate"
    assert CLASSES[fw].entropy_kind == "exact"
    with pytest.raises(NoClosedFormError, match=r"action\[1\]"):
        dist.entropy()
    expected = torch.distributions.Categorical(logits=torch.from_numpy(INPUTS[:, :5])).entropy() + 3
    close(dist.entropy_estimate(), expected)
    assert tuple(dist.kl(dist).shape) == (ROWS,)


# --- samples --------------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("rows", [1, 7])
def test_samples_are_structures_of_the_space(fw, rows):
    dist = make(fw, INPUTS[:rows])
    for draw in (dist.sample, dist.rsample, dist.deterministic_sample):
        sample = draw()
        assert isinstance(sample, tuple)
        assert list(sample[2]) == ["z", "a"]
        assert isinstance(sample[2]["a"], tuple)
        shapes = [tuple(leaf.shape) for leaf in leaves_of(sample)]
        assert shapes == [(rows,), (rows, 4), (rows,), (rows, 2), (rows,)]
        assert [array(leaf).dtype.name for leaf in leaves_of(sample)] == [
            "int64",
            "float32",
            *["int64"] * 3,
        ]
        for value in (dist.logp(sample), dist.entropy(), dist.kl(dist), dist.entropy_estimate()):
            assert tuple(value.shape) == (rows,)
            assert array(value).dtype == np.float32
    assert tuple(dist.multi_entropy().shape) == tuple(dist.multi_kl(dist).shape) == (rows, 3)


@frameworks
def test_a_sample_scores_the_same_in_every_form(fw):
    dist = make(fw)
    for draw in (dist.sample, dist.deterministic_sample):
        sample = draw()
        expected = array(dist.sampled_action_logp())
        assert dist.last_sample is sample
        for form in (
            sample,
            tuple(sample),
            dist.join(sample),
            array(dist.join(sample)),
            leaves_of(sample),
        ):
            close(dist.logp(form), expected)


@frameworks
def test_a_sample_that_was_changed_is_scored_as_it_is_now(fw):
    dist = make(fw)
    sample = dist.sample()
    before = array(dist.logp(sample))
    sample[2]["z"] = (sample[2]["z"] + 1) % 4
    after = array(dist.logp(sample))
    close(dist.logp(dist.join(sample)), after)
    assert not np.allclose(before, after)


@frameworks
def test_split_undoes_join(fw):
    dist = make(fw)
    sample = dist.sample()
    again = dist.split(dist.join(sample))
    assert tuple(dist.join(sample).shape) == (ROWS, WIDTH)
    assert list(again[2]) == list(sample[2])
    for one, other in zip(leaves_of(sample), leaves_of(again), strict=True):
        np.testing.assert_array_equal(array(one), array(other))
        assert one.dtype == other.dtype


@frameworks
def test_whole_numbers_survive_the_flat_form_beside_half_precision(fw):
    space = spaces.Tuple([spaces.Discrete(3000), spaces.Box(-1, 1, (1,))])
    inputs = tensor(fw, np.zeros((2, 3002), np.float32))
    dist = CLASSES[fw](
        inputs, child_distributions=LEAVES[fw], input_lens=[3000, 2], action_space=space
    )
    index = tensor(fw, np.array([2999, 2051]))
    half = tensor(fw, np.array([[0.5], [0.25]], np.float16))
    flat = dist.join((index, half))
    assert array(flat).dtype == np.float32
    np.testing.assert_array_equal(array(dist.split(flat)[0]), [2999, 2051])


@frameworks
def test_each_sample_is_fresh_and_its_parts_follow_their_distributions(fw):
    torch.manual_seed(0)
    tf.random.set_seed(0)
    dist = make(fw, np.tile(INPUTS[:1], (4000, 1)))
    one, other = (array(dist.join(dist.sample())) for _ in range(2))
    assert not np.array_equal(one, other)
    for column, part in ((0, 0), (5, 2), (6, 3), (7, 4), (8, 5)):
        probs = truth()[part].probs[0].numpy()
        np.testing.assert_allclose(
            np.bincount(one[:, column].astype(int), minlength=len(probs)) / 4000, probs, atol=0.04
        )
    mean, std = INPUTS[0, 5:9], np.exp(INPUTS[0, 9:13])
    np.testing.assert_allclose((one[:, 1:5].mean(axis=0) - mean) / std, 0, atol=0.08)
    np.testing.assert_allclose(one[:, 1:5].std(axis=0) / std, 1, atol=0.06)


def test_gradients_reach_all_inputs():
    inputs = torch.from_numpy(INPUTS.copy()).requires_grad_()
    dist = served("torch")[0](inputs)
    (dist.logp(FLAT) + dist.entropy()).sum().backward()
    assert (inputs.grad != 0).all()
    assert not dist.sample()[1].requires_grad
    assert dist.rsample()[1].requires_grad


def test_it_works_inside_a_trace_of_unknown_batch_size():
    dist_class, _ = served("tf")
    calls = []

    @tf.function(input_signature=[tf.TensorSpec([None, SIZE]), tf.TensorSpec([None, WIDTH])])
    def scores(inputs, flat):
        calls.append(1)
        dist = dist_class(inputs)
        sample = dist.sample()
        return (
            dist.logp(flat),
            dist.logp(sample),
            dist.entropy(),
            dist.kl(dist),
            dist.logp(dist.split(flat)),
            sample,
        )

    for rows in (7, 3):
        logp, own, entropy, kl, split, sample = scores(INPUTS[:rows], FLAT[:rows])
        close(logp, true_logps()[:rows].sum(dim=1))
        close(split, true_logps()[:rows].sum(dim=1))
        close(own, array(make("tf", INPUTS[:rows]).logp(sample)))
        close(entropy, sum(part.entropy() for part in truth())[:rows])
        close(kl, 0)
    assert len(calls) == 1


@frameworks
def test_the_inputs_are_all_it_takes(fw):
    dist = make(fw)
    again = make(fw, array(dist.inputs))
    np.testing.assert_array_equal(array(again.logp(FLAT)), array(dist.logp(FLAT)))


@frameworks
def test_nothing_is_scored_before_it_is_drawn(fw):
    with pytest.raises(StaleOutputError):
        make(fw).sampled_action_logp()


@frameworks
def test_extreme_inputs_stay_finite(fw):
    for value in (0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, 1e-6):
        inputs = np.full((2, SIZE), 0, np.float32)
        inputs[:, [0, 5, 13, 17, 22]] = value  # a logit of each Discrete, a mean
        dist = make(fw, inputs)
        assert np.isfinite(array(dist.join(dist.sample()))).all()
        assert np.isfinite(array(dist.sampled_action_logp())).all()
        assert np.isfinite(array(dist.entropy())).all()


# --- errors ---------------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b, c: (a, b), r"expected 3 parts, or one for each of the 5 leaves, found 2"),
        (
            lambda a, b, c: (a, b, {"z": c["z"]}),
            r"action\[2\]: expected a dict with the keys \['z', 'a'\].*\['z'\]",
        ),
        (lambda a, b, c: (a, b, {**c, "y": c["z"]}), r"keys \['z', 'a', 'y'\]"),
        (
            lambda a, b, c: (a, b, (c["z"], c["a"])),
            r"action\[2\]: expected a dict .* found a tuple",
        ),
        (
            lambda a, b, c: (a, b, {**c, "a": c["a"][:1]}),
            r"action\[2\]\['a'\]: expected a tuple of 2 parts, found 1",
        ),
        (lambda a, b, c: {"a": a}, r"action: expected a tuple of 3 parts, found a dict"),
        (
            lambda a, b, c: (a, b[:, :3], c),
            r"action\[1\]: expected 4 raw values for each of 7 rows.*\(7, 3\)",
        ),
        (
            lambda a, b, c: (a[:5], b, c),
            r"action\[0\]: expected 1 raw value for each of 7 rows.*\(5,\)",
        ),
        (
            lambda a, b, c: FLAT[:, :8],
            r"expected actions of shape \(7, 9\).*action\[1\]: 4.*found \(7, 8\)",
        ),
        (lambda a, b, c: FLAT[:5], r"expected actions of shape \(7, 9\).*found \(5, 9\)"),
        (lambda a, b, c: None, r"expected a tuple of 3 parts, found a NoneType"),
    ],
)
def test_actions_of_another_form_are_refused(fw, change, message):
    with pytest.raises(ModelContractError, match=message):
        make(fw).logp(change(*structure(fw)))


@frameworks
def test_parts_that_do_not_fit_together_are_refused(fw):
    cls, (categorical, gaussian) = CLASSES[fw], LEAVES[fw]
    space = spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (1,))])
    whole = {
        "child_distributions": [categorical, gaussian],
        "input_lens": [5, 2],
        "action_space": space,
    }
    inputs = tensor(fw, INPUTS[:, :7])
    cls(inputs, None, **whole)
    for change, error, message in (
        ({"input_lens": [5]}, ModelContractError, "2 child_distributions, but 1 input_lens"),
        (
            {"child_distributions": [categorical], "input_lens": [7]},
            ModelContractError,
            "expected 2 child_dist",
        ),
        ({"input_lens": [5, 4]}, ModelContractError, r"expected 9 model outputs \(action\[0\]: 5"),
        ({"action_space": None}, ModelContractError, "action_space="),
        (
            {"action_space": spaces.Discrete(2)},
            UnsupportedSpaceError,
            "needs a non-empty Tuple or Dict",
        ),
    ):
        with pytest.raises(error, match=message):
            cls(inputs, None, **{**whole, **change})
    with pytest.raises(ModelContractError, match="same parts"):
        make(fw).kl(cls(inputs, None, **whole))
    with pytest.raises(ModelContractError, match="MultiActionDistribution"):
        make(fw).kl(categorical(inputs))
