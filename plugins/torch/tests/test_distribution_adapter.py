"""Classes of `torch.distributions` as action distributions, against the same classes by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from action_kinds import Anything
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from scipy import special, stats
from torch import distributions as td
from torch_dists import (
    BOUNDED,
    CASES,
    COUNTS,
    FREE,
    MOVED,
    NO_ENTROPY,
    NO_KL,
    POSITIVE,
    Peaked,
    by_value,
    mixture,
    two,
)

import rlcatalog
from rlcatalog.errors import (
    ModelContractError,
    NoClosedFormError,
    NotServedError,
    PartError,
    UnsupportedSpaceError,
)
from rlcatalog.spaces import Simplex


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def make_pair(catalog, case):
    """Return a case's distribution of 50 random rows, and the same made by hand."""
    (dist, _), (exact, _) = two(catalog, case)
    return dist, exact


def action_dist(catalog, space, source, **config):
    """Return the distribution class and size that the catalog makes of a torch class."""
    config = {**config, "custom_action_dist": source}
    return catalog.action_dist(space, config, framework="torch")


# --- samples and densities ------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_samples_are_those_of_the_class(catalog, case):
    dist, exact = make_pair(catalog, case)

    torch.manual_seed(0)
    sample = dist.sample()
    torch.manual_seed(0)
    expected = exact.sample()

    torch.testing.assert_close(sample.to(expected.dtype), expected)
    assert not dist.rsample().requires_grad  # nor do the inputs


@pytest.mark.parametrize("case", CASES)
def test_samples_are_integers_for_choices_and_bits(catalog, case):
    dist, _ = make_pair(catalog, case)

    has_integers = isinstance(CASES[case].space, Discrete | MultiDiscrete | MultiBinary)
    if case == "OneHotCategorical":
        has_integers = False

    assert dist.sample().dtype is (torch.int64 if has_integers else torch.float32)


@pytest.mark.parametrize("case", [case for case in CASES if case not in MOVED])
def test_logp_is_that_of_the_class(catalog, case):
    dist, exact = make_pair(catalog, case)
    sample = dist.sample()

    logp = dist.logp(sample)

    expected = exact.log_prob(sample.to(exact.sample().dtype))
    torch.testing.assert_close(logp, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", [case for case in CASES if case not in NO_ENTROPY | MOVED])
def test_entropy_is_that_of_the_class(catalog, case):
    dist, exact = make_pair(catalog, case)

    torch.testing.assert_close(dist.entropy(), exact.entropy())


@pytest.mark.parametrize("case", sorted(NO_ENTROPY))
def test_entropy_without_closed_form_is_an_error(catalog, case):
    dist, _ = make_pair(catalog, case)

    assert dist.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="entropy"):
        dist.entropy()


@pytest.mark.parametrize("case", [case for case in CASES if case not in NO_KL])
def test_kl_is_that_of_the_class(catalog, case):
    (dist, other), (exact, exact_other) = two(catalog, case)

    torch.testing.assert_close(dist.kl(other), td.kl_divergence(exact, exact_other))


@pytest.mark.parametrize("case", sorted(NO_KL))
def test_kl_without_closed_form_is_an_error(catalog, case):
    (dist, other), _ = two(catalog, case)

    with pytest.raises(NoClosedFormError, match="kl"):
        dist.kl(other)


def test_gradient_of_entropy_estimate_is_unbiased(catalog):
    cls, _ = action_dist(catalog, Box(0, 20, (1,), np.int64), td.Poisson)
    log_rate = torch.tensor([[0.3]], requires_grad=True)

    # The mean over many rows is close to the expectation.
    dist = cls(log_rate.expand(200_000, 1), None)
    estimate = dist.entropy_estimate().mean()
    (gradient,) = torch.autograd.grad(estimate, log_rate)

    # The exact entropy is a sum over all counts; those above 60 are too unlikely to matter.
    logp = td.Poisson(log_rate.exp()).log_prob(torch.arange(60.0))
    entropy = -(logp.exp() * logp).sum()
    (exact_gradient,) = torch.autograd.grad(entropy, log_rate)
    assert estimate.item() == pytest.approx(entropy.item(), abs=0.01)
    assert gradient.item() == pytest.approx(exact_gradient.item(), abs=0.02)


def test_logp_in_double_precision_is_exact(catalog):
    cls, size = action_dist(catalog, FREE, td.Laplace)
    inputs = torch.randn(4, size, dtype=torch.float64)
    dist = cls(inputs, None)
    sample = dist.sample()

    expected = stats.laplace(inputs[:, :2], inputs[:, 2:].exp()).logpdf(sample).sum(1)

    np.testing.assert_allclose(dist.logp(sample), expected, rtol=1e-12)


def test_logp_in_half_precision_is_float32(catalog):
    cls, size = action_dist(catalog, FREE, td.Laplace)

    dist = cls(torch.randn(4, size).half(), None)

    assert dist.logp(torch.zeros(4, 2)).dtype is torch.float32


# --- deterministic actions ------------------------------------------------------------------------

#: Cases whose mode is that of the class by hand.
HAS_MODE = [
    case
    for case in CASES
    if case not in {"MixtureSameFamily", "a class with num_inputs", "Beta", "Kumaraswamy"}
]


@pytest.mark.parametrize("case", HAS_MODE)
def test_deterministic_sample_is_the_mode(catalog, case):
    dist, exact = make_pair(catalog, case)

    sample = dist.deterministic_sample()

    torch.testing.assert_close(sample.to(exact.mode.dtype), exact.mode)


def test_deterministic_sample_is_the_mode_of_a_user_class(catalog):
    dist, _ = make_pair(catalog, "a class with num_inputs")

    torch.testing.assert_close(dist.deterministic_sample(), by_value(Peaked(dist.inputs)).mode)


def test_deterministic_sample_of_beta_is_the_moved_mode(catalog):
    dist, exact = make_pair(catalog, "Beta")

    unit_interval = by_value(exact.base_dist.base_dist)

    torch.testing.assert_close(dist.deterministic_sample(), -2 + 5 * unit_interval.mode)


def test_deterministic_sample_of_kumaraswamy_is_the_moved_mean(catalog):
    dist, exact = make_pair(catalog, "Kumaraswamy")

    unit_interval = exact.base_dist.base_dist  # its mode is NaN in PyTorch

    torch.testing.assert_close(dist.deterministic_sample(), -2 + 5 * unit_interval.mean)


def test_deterministic_sample_without_mode_is_an_error(catalog):
    dist, _ = make_pair(catalog, "MixtureSameFamily")

    with pytest.raises(NoClosedFormError, match="has no mode, but acting with explore"):
        dist.deterministic_sample()


# A VonMises density is flat in float32, and a Beta may have a peak at either bound.
@pytest.mark.parametrize("case", [case for case in HAS_MODE if case != "VonMises"])
def test_deterministic_sample_is_more_likely_than_samples(catalog, case):
    dist, _ = make_pair(catalog, case)

    best = dist.logp(dist.deterministic_sample())

    # Finite even at the bound of a Gamma's support, where it has no density.
    assert best.isfinite().all()
    for _ in range(20):
        assert (best >= dist.logp(dist.sample()) - 1e-4).all()


# --- values of [0, 1], moved into the bounds -2 and 3 ---------------------------------------------


def read_arguments(dist):
    """Return the two arguments of a Beta or a Kumaraswamy for two values, `[50, 2]` each."""
    arguments = dist.inputs.double().exp().numpy()
    return arguments[:, :2], arguments[:, 2:]


@pytest.mark.parametrize("case", sorted(MOVED))
def test_moved_samples_are_within_the_bounds(catalog, case):
    dist, _ = make_pair(catalog, case)

    sample = dist.sample()

    assert ((sample >= -2) & (sample <= 3)).all()


def test_logp_of_moved_beta_matches_scipy(catalog):
    dist, _ = make_pair(catalog, "Beta")
    a, b = read_arguments(dist)
    actions = np.full((50, 2), [-1.5, 2.5])

    logp = dist.logp(torch.tensor(actions, dtype=torch.float32))

    expected = stats.beta(a, b, loc=-2, scale=5).logpdf(actions).sum(axis=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-4)


def test_logp_of_moved_kumaraswamy_is_that_of_its_formula(catalog):
    dist, _ = make_pair(catalog, "Kumaraswamy")
    a, b = read_arguments(dist)
    actions = np.full((50, 2), [-1.5, 2.5])

    logp = dist.logp(torch.tensor(actions, dtype=torch.float32))

    # In [0, 1] the density is a b y^(a-1) (1 - y^a)^(b-1), and [-2, 3] is five times as wide.
    y = (actions + 2) / 5
    density = a * b * y ** (a - 1) * (1 - y**a) ** (b - 1) / 5
    np.testing.assert_allclose(logp, np.log(density).sum(axis=1), rtol=1e-4, atol=1e-4)


# --- as distributions of PyTorch ------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(MOVED))
def test_view_of_moved_values_has_moved_moments(catalog, case):
    dist, exact = make_pair(catalog, case)
    unit_interval = exact.base_dist.base_dist

    view = dist.as_torch()

    torch.testing.assert_close(view.mean, -2 + 5 * unit_interval.mean)
    torch.testing.assert_close(view.stddev, 5 * unit_interval.stddev)
    torch.testing.assert_close(view.mode, dist.deterministic_sample())


@pytest.mark.parametrize("case", sorted(MOVED))
def test_view_of_moved_values_scores_alike(catalog, case):
    dist, _ = make_pair(catalog, case)
    sample = dist.sample()

    torch.testing.assert_close(dist.as_torch().log_prob(sample), dist.logp(sample))


@pytest.mark.parametrize("case", sorted(MOVED - NO_KL))
def test_view_of_moved_values_has_the_same_kl(catalog, case):
    (dist, other), _ = two(catalog, case)

    torch.testing.assert_close(td.kl_divergence(dist.as_torch(), other.as_torch()), dist.kl(other))


@pytest.fixture
def dict_without_mode(catalog):
    """A distribution of a Dict; its part "far" has no mode."""
    space = Dict({"go": Discrete(3), "far": BOUNDED})
    cls, size = action_dist(catalog, space, {"action['far']": td.ContinuousBernoulli})
    return cls(torch.randn(20, size), None)


def test_view_of_part_without_mode_samples_and_scores(dict_without_mode):
    view = dict_without_mode.as_torch()

    torch.manual_seed(0)
    flat = view.sample()
    torch.manual_seed(0)
    sample = dict_without_mode.sample()

    torch.testing.assert_close(flat, view.dist.ops.columns(list(sample.values())))
    torch.testing.assert_close(view.log_prob(flat), dict_without_mode.logp(flat))


def test_view_of_part_without_mode_has_no_mode(dict_without_mode):
    with pytest.raises(NotImplementedError, match="has no mode"):
        _ = dict_without_mode.as_torch().mode


# --- masks ----------------------------------------------------------------------------------------


def make_masked(catalog, source):
    """Return a distribution over four choices of which values 0 and 2 are allowed, and its logits
    `[500, 4]`.
    """
    cls, size = action_dist(catalog, Discrete(4), source)
    logits = torch.randn(500, size)
    mask = torch.tensor([True, False, True, False]).expand(500, 4)
    return cls(cls.masked(logits, mask), None), logits


@pytest.mark.parametrize("source", [td.Categorical, td.OneHotCategorical])
def test_masked_probabilities_are_those_of_allowed_values(catalog, source):
    dist, logits = make_masked(catalog, source)

    expected = special.softmax(logits[:, [0, 2]].double().numpy(), axis=1)
    for column, action in enumerate([0, 2]):
        value = torch.full((500,), action)
        if source is td.OneHotCategorical:
            value = torch.eye(4)[value]
        np.testing.assert_allclose(dist.logp(value).exp(), expected[:, column], rtol=1e-4)


@pytest.mark.parametrize("source", [td.Categorical, td.OneHotCategorical])
def test_masked_samples_are_allowed(catalog, source):
    dist, _ = make_masked(catalog, source)

    sample = dist.sample()
    if source is td.OneHotCategorical:
        sample = sample.argmax(-1)

    assert set(sample.tolist()) == {0, 2}
    assert dist.entropy().isfinite().all()


def test_mask_of_other_classes_is_an_error(catalog):
    cls, size = action_dist(catalog, MultiBinary(2), td.Bernoulli)

    with pytest.raises(NotServedError, match="Bernoulli does not support action masks"):
        cls.masked(torch.zeros(1, size), torch.ones(1, 4, dtype=torch.bool))


# --- supports that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "space"),
    [
        pytest.param(td.Gamma, BOUNDED, id="positive numbers for a Box below 0"),
        pytest.param(
            td.LogNormal,
            Box(0, 5, (2,), np.float32),
            id="positive numbers for a Box that is scaled from [-1, 1]",
        ),
        pytest.param(td.Poisson, Discrete(4), id="counts without end for a Discrete"),
        pytest.param(td.Poisson, POSITIVE, id="counts for floats"),
        pytest.param(td.Normal, COUNTS, id="floats for counts"),
        pytest.param(td.Normal, Discrete(3), id="floats for choices"),
        pytest.param(td.Categorical, FREE, id="choices for floats"),
        pytest.param(td.Categorical, MultiDiscrete([3, 4]), id="one number of choices for several"),
        pytest.param(td.OneHotCategorical, MultiBinary(3), id="one-hots for bits"),
        pytest.param(td.OneHotCategorical, FREE, id="one-hots for floats"),
        pytest.param(td.Dirichlet, FREE, id="shares for floats"),
        pytest.param(td.Dirichlet, Simplex((2, 3)), id="one row of shares for two"),
        pytest.param(
            td.Pareto, Box(2, np.inf, (2,), np.float32), id="a support that moves with an argument"
        ),
        pytest.param(td.Beta, FREE, id="the unit interval for a Box without bounds"),
        pytest.param(td.LogisticNormal, FREE, id="another number of values"),
    ],
)
def test_support_that_does_not_fit_is_an_error(catalog, source, space, monkeypatch):
    # The error comes before a model is built.
    monkeypatch.setattr(rlcatalog.Policy, "make_model", None)

    message = rf"^action: .*{source.__name__}"
    with pytest.raises(UnsupportedSpaceError, match=message):
        action_dist(catalog, space, source)
    with pytest.raises(UnsupportedSpaceError, match=message):
        rlcatalog.build(env=Anything(space), config={"custom_action_dist": source}, catalog=catalog)


def test_positive_numbers_for_bounded_box_need_clip(catalog):
    space = Box(0, 5, (2,), np.float32)

    with pytest.raises(UnsupportedSpaceError, match="set action_bounds='clip'"):
        action_dist(catalog, space, td.LogNormal)


def test_positive_numbers_for_bounded_box_are_sampled_with_clip(catalog):
    space = Box(0, 5, (2,), np.float32)

    cls, size = action_dist(catalog, space, td.LogNormal, action_bounds="clip")

    assert cls(torch.zeros(1, size)).sample().min() > 0


def test_other_framework_is_an_error(catalog):
    with pytest.raises(NotServedError, match="has no code for framework='tf'"):
        catalog.action_dist(FREE, {"custom_action_dist": td.Laplace}, framework="tf")


# --- registering ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [td.Uniform, td.MultivariateNormal, td.RelaxedOneHotCategorical, td.LKJCholesky]
)
def test_registering_class_with_unknown_arguments_is_an_error(catalog, source):
    with pytest.raises(ModelContractError, match="does not define in arg_constraints") as caught:
        catalog.register_action_dist("own", source)

    assert source.__name__ in str(caught.value)
    assert "num_inputs=n)" in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [mixture, torch.nn.Linear, 3, "laplace", td.Laplace(0, 1)],
    ids=["function", "module", "number", "text", "instance"],
)
def test_registering_without_num_inputs_is_an_error(catalog, source):
    with pytest.raises(ModelContractError, match="num_inputs="):
        catalog.register_action_dist("own", source)


@pytest.mark.parametrize(
    ("factory", "error", "message"),
    [
        (lambda x: x, ModelContractError, "Distribution, found Tensor"),
        (
            lambda x: td.Normal(x, 1.0),
            UnsupportedSpaceError,
            r"\[B, 2\], but lambda draws \[B, 3\]",
        ),
        (lambda x: x / 0 / None, PartError, "its size function raised TypeError"),
    ],
    ids=["tensor", "wrong width", "raises"],
)
def test_factory_without_fitting_distribution_is_an_error(catalog, factory, error, message):
    catalog.register_action_dist("own", factory, num_inputs=3)

    with pytest.raises(error, match=message):
        rlcatalog.build(env=Anything(FREE), config={"custom_action_dist": "own"}, catalog=catalog)


def full_gaussian(x):
    """Return a Gaussian with a full covariance, from n means and n · n numbers."""
    n = int(x.shape[1] ** 0.5)
    to_cholesky = td.transform_to(td.constraints.lower_cholesky)
    return td.MultivariateNormal(x[:, :n], scale_tril=to_cholesky(x[:, n:].reshape(-1, n, n)))


def test_num_inputs_may_depend_on_the_space(catalog):
    def num_inputs(space):
        (size,) = space.shape
        return size * (size + 1)

    catalog.register_action_dist("full", full_gaussian, num_inputs=num_inputs)

    cls, size = action_dist(catalog, Box(-1, 1, (3,), np.float32), "full")

    assert size == 3 * 4  # as `num_inputs` computes for a size of 3
    # Inputs of 0 make a Gaussian with mean 0 and unit covariance.
    logp = cls(torch.zeros(1, size), None).logp(torch.tensor([[0.5, 0.5, 0.5]]))
    expected = stats.multivariate_normal([0, 0, 0]).logpdf([0.5, 0.5, 0.5])
    assert logp.item() == pytest.approx(expected, rel=1e-5)


# --- parts ----------------------------------------------------------------------------------------


@pytest.fixture
def dict_with_gamma(catalog):
    """A distribution of a Dict, and its parts by hand: a Gamma "far" and a choice "go"."""
    space = Dict({"go": Discrete(3), "far": POSITIVE})
    cls, size = action_dist(catalog, space, {"action['far']": td.Gamma})
    assert size == 4 + 3
    inputs = torch.randn(20, size)
    far = td.Gamma(inputs[:, :2].exp(), inputs[:, 2:4].exp())
    return cls(inputs, None), far, td.Categorical(logits=inputs[:, 4:])


def test_logp_of_dict_includes_a_class_of_pytorch(dict_with_gamma):
    dist, far, go = dict_with_gamma
    sample = dist.sample()

    expected = far.log_prob(sample["far"]).sum(-1) + go.log_prob(sample["go"])

    torch.testing.assert_close(dist.logp(sample), expected)


def test_entropy_of_dict_includes_a_class_of_pytorch(dict_with_gamma):
    dist, far, go = dict_with_gamma

    torch.testing.assert_close(dist.entropy(), far.entropy().sum(-1) + go.entropy())
