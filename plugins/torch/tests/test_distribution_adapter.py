"""Classes of `torch.distributions` as action distributions, against the same classes called by
hand.
"""

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
    register,
    two,
    within,
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


@pytest.mark.parametrize("case", CASES)
def test_draws_and_densities_are_those_of_the_class(catalog, case):
    (own, _), (truth, _) = two(catalog, case)
    torch.manual_seed(0)
    drawn = own.sample()
    torch.manual_seed(0)
    expected = truth.sample()
    torch.testing.assert_close(drawn.to(expected.dtype), expected)
    rows = slice(None) if case not in MOVED else within(drawn)
    torch.testing.assert_close(
        own.logp(drawn)[rows], truth.log_prob(expected)[rows], rtol=1e-3, atol=1e-3
    )
    assert own.sampled_action_logp().shape == (50,)
    choices = (
        isinstance(CASES[case][1], Discrete | MultiDiscrete | MultiBinary)
        and case != "OneHotCategorical"
    )
    assert drawn.dtype is (torch.int64 if choices else torch.float32)
    assert not own.rsample().requires_grad


@pytest.mark.parametrize("case", CASES)
def test_entropy_and_kl_are_torchs_or_a_typed_error(catalog, case):
    (own, other), (truth, its) = two(catalog, case)
    if case in NO_ENTROPY:
        assert own.entropy_kind == "estimate"
        with pytest.raises(NoClosedFormError, match="entropy"):
            own.entropy()
    elif case not in MOVED:
        torch.testing.assert_close(own.entropy(), truth.entropy())
    if case in NO_KL:
        with pytest.raises(NoClosedFormError, match="kl"):
            own.kl(other)
    else:
        torch.testing.assert_close(own.kl(other), td.kl_divergence(truth, its))


@pytest.mark.parametrize("case", CASES)
def test_the_deterministic_action_is_the_mode(catalog, case):
    (own, _), (truth, _) = two(catalog, case)
    if case == "MixtureSameFamily":
        with pytest.raises(
            NoClosedFormError, match="has no mode, but acting with explore=False needs one"
        ):
            own.deterministic_sample()
        return
    drawn = own.deterministic_sample()
    if case == "a class with num_inputs":
        truth = by_value(Peaked(own.inputs))
    elif case == "Beta":
        truth = by_value(truth.base_dist.base_dist)
        drawn = (drawn + 2) / 5
    elif case == "Kumaraswamy":  # torch has NaN for all of its modes
        torch.testing.assert_close((drawn + 2) / 5, truth.base_dist.base_dist.mean)
        return
    torch.testing.assert_close(drawn.to(truth.mode.dtype), truth.mode)
    # a Beta may have a peak at either bound.
    if case not in ("a class with num_inputs", "VonMises", "Beta"):
        best = own.logp(own.deterministic_sample())
        # Also at the bound of a Gamma's support, where its density has none.
        assert best.isfinite().all()
        assert all((best >= own.logp(own.sample()) - 1e-4).all() for _ in range(20))


@pytest.mark.parametrize("case", sorted(MOVED))
def test_values_of_the_unit_interval_are_moved_into_the_bounds(catalog, case):
    (own, _), _ = two(catalog, case)
    a, b = own.inputs.double().exp().numpy()[:, :2], own.inputs.double().exp().numpy()[:, 2:]
    x = own.sample().double().numpy()
    assert ((x >= -2) & (x <= 3)).all()
    if case == "Beta":
        dists = stats.beta(a, b, loc=-2, scale=5)
        densities, entropy = dists.logpdf(x), dists.entropy()
    else:
        y = np.clip((x + 2) / 5, 1e-9, 1 - 1e-9)
        densities = np.log(a * b / 5) + (a - 1) * np.log(y) + (b - 1) * np.log1p(-(y**a))
        harmonic = special.digamma(b + 1) + np.euler_gamma
        entropy = (1 - 1 / b) + (1 - 1 / a) * harmonic - np.log(a * b) + np.log(5)
    inside = within(x)
    np.testing.assert_allclose(
        own.logp(x).numpy()[inside], densities.sum(1)[inside], rtol=2e-3, atol=2e-3
    )
    np.testing.assert_allclose(own.entropy().numpy(), entropy.sum(1), rtol=2e-3, atol=5e-3)
    if case == "Beta":  # torch's Kumaraswamy is not finite at its bounds
        assert own.logp(torch.tensor([[-2.0, 3.0]]).expand(50, 2)).isfinite().all()


@pytest.mark.parametrize("case", sorted(MOVED))
def test_what_is_moved_is_seen_as_torchs_distribution(catalog, case):
    (own, other), (truth, _) = two(catalog, case)
    view, drawn = own.as_torch(), own.sample()
    base = truth.base_dist.base_dist
    torch.testing.assert_close(view.mean, -2 + 5 * base.mean)
    torch.testing.assert_close(view.stddev, 5 * base.stddev)
    torch.testing.assert_close(view.log_prob(drawn), own.logp(drawn))
    torch.testing.assert_close(view.mode, own.deterministic_sample())
    if case not in NO_KL:
        torch.testing.assert_close(td.kl_divergence(view, other.as_torch()), own.kl(other))


def test_a_part_without_a_mode_has_a_view_that_draws_as_without_it(catalog):
    space = Dict({"go": Discrete(3), "far": BOUNDED})
    config = {"custom_action_dist": {"action['far']": td.ContinuousBernoulli}}
    cls, size = catalog.action_dist(space, config, framework="torch")
    dist = cls(torch.randn(20, size), None)
    torch.manual_seed(0)
    view = dist.as_torch()
    drawn = view.sample()
    torch.manual_seed(0)
    assert (
        drawn == cls(dist.inputs, None).as_torch().dist.ops.columns(list(dist.sample().values()))
    ).all()
    torch.testing.assert_close(view.log_prob(drawn), dist.logp(drawn))
    with pytest.raises(NotImplementedError, match="has no mode"):
        _ = view.mode


def test_the_gradient_of_an_estimated_entropy_is_unbiased_without_rsample(catalog):
    cls, _ = catalog.action_dist(COUNTS, register(catalog, "Poisson"), framework="torch")
    log_rate = torch.tensor([[0.3, 1.2]], requires_grad=True)
    torch.manual_seed(0)
    estimate = cls(log_rate.expand(200_000, 2), None).entropy_estimate()
    (gradient,) = torch.autograd.grad(estimate.mean(), log_rate)
    k = torch.arange(60.0)[:, None].double()
    exact_log_rate = log_rate.detach().double().requires_grad_()
    logs = k * exact_log_rate - exact_log_rate.exp() - torch.lgamma(k + 1)
    entropy = -(logs.exp() * logs).sum()
    (exact,) = torch.autograd.grad(entropy, exact_log_rate)
    assert abs(estimate.mean().item() - entropy.item()) < 0.01
    torch.testing.assert_close(gradient.double(), exact, rtol=0, atol=0.02)


@pytest.mark.parametrize("source", [td.Categorical, td.OneHotCategorical])
def test_masks_are_baked_into_logits(catalog, source):
    cls, size = catalog.action_dist(Discrete(4), {"custom_action_dist": source}, framework="torch")
    logits, mask = torch.randn(500, size), torch.tensor([True, False, True, False]).expand(500, 4)
    dist = cls(cls.masked(logits, mask), None)
    probs = np.where(mask, np.exp(logits.double().numpy()), 0)
    probs /= probs.sum(1, keepdims=True)
    for action in (0, 2):
        value = torch.tensor(action) if source is td.Categorical else torch.eye(4)[action]
        np.testing.assert_allclose(
            dist.logp(value.expand(500, *value.shape)).exp(), probs[:, action], rtol=1e-4
        )
    drawn = dist.sample() if source is td.Categorical else dist.sample().argmax(-1)
    assert set(drawn.tolist()) == {0, 2}
    assert dist.entropy().isfinite().all()


def test_others_refuse_masks(catalog):
    cls, size = catalog.action_dist(
        MultiBinary(2), {"custom_action_dist": td.Bernoulli}, framework="torch"
    )
    with pytest.raises(NotServedError, match="Bernoulli does not support action masks"):
        cls.masked(torch.zeros(1, size), torch.ones(1, 4, dtype=torch.bool))


UNFIT = {
    "positive numbers for a Box below 0": (td.Gamma, BOUNDED, {}),
    "positive numbers for a Box that is scaled from [-1, 1]": (
        td.LogNormal,
        Box(0, 5, (2,), np.float32),
        {},
    ),
    "counts without end for a Discrete": (td.Poisson, Discrete(4), {}),
    "counts for floats": (td.Poisson, POSITIVE, {}),
    "floats for counts": (td.Normal, COUNTS, {}),
    "floats for choices": (td.Normal, Discrete(3), {}),
    "choices for floats": (td.Categorical, FREE, {}),
    "one number of choices for several": (td.Categorical, MultiDiscrete([3, 4]), {}),
    "one-hots for bits": (td.OneHotCategorical, MultiBinary(3), {}),
    "one-hots for floats": (td.OneHotCategorical, FREE, {}),
    "shares for floats": (td.Dirichlet, FREE, {}),
    "one row of shares for two": (td.Dirichlet, Simplex((2, 3)), {}),
    "a support that moves with an argument": (td.Pareto, Box(2, np.inf, (2,), np.float32), {}),
    "the unit interval for a Box without bounds": (td.Beta, FREE, {}),
    "another number of values": (td.LogisticNormal, FREE, {}),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_support_that_does_not_fit_is_refused_before_a_model_is_built(catalog, case, monkeypatch):
    source, space, config = UNFIT[case]
    monkeypatch.setattr(rlcatalog.Policy, "make_model", None)
    with pytest.raises(UnsupportedSpaceError, match=rf"^action: .*{source.__name__}"):
        catalog.action_dist(space, config | {"custom_action_dist": source}, framework="torch")
    with pytest.raises(UnsupportedSpaceError, match=rf"^action: .*{source.__name__}"):
        rlcatalog.build(
            env=Anything(space), config=config | {"custom_action_dist": source}, catalog=catalog
        )


def test_positive_numbers_for_a_bounded_box_need_clip(catalog):
    space = Box(0, 5, (2,), np.float32)
    config = {"custom_action_dist": td.LogNormal}
    with pytest.raises(UnsupportedSpaceError, match="set action_bounds='clip'"):
        catalog.action_dist(space, config, framework="torch")
    cls, size = catalog.action_dist(space, config | {"action_bounds": "clip"}, framework="torch")
    assert cls(torch.zeros(1, size)).sample().min() > 0


@pytest.mark.parametrize(
    "source", [td.Uniform, td.MultivariateNormal, td.RelaxedOneHotCategorical, td.LKJCholesky]
)
def test_a_class_that_does_not_say_enough_is_refused_with_the_way(catalog, source):
    name = source.__name__
    with pytest.raises(
        ModelContractError, match=rf"{name} does not define in arg_constraints .*num_inputs=n\)"
    ):
        catalog.register_action_dist("own", source)


@pytest.mark.parametrize("source", [mixture, torch.nn.Linear, 3, "laplace", td.Laplace(0, 1)])
def test_what_is_neither_a_class_nor_a_function_with_its_inputs_is_refused(catalog, source):
    with pytest.raises(ModelContractError, match="num_inputs="):
        catalog.register_action_dist("own", source)


@pytest.mark.parametrize(
    ("factory", "error", "text"),
    [
        (
            lambda x: x,
            ModelContractError,
            "must return a torch.distributions.Distribution, found Tensor",
        ),
        (
            lambda x: td.Normal(x, 1.0),
            UnsupportedSpaceError,
            r"takes raw actions \[B, 2\], but lambda draws \[B, 3\]",
        ),
        (lambda x: x / 0 / None, PartError, "its size function raised TypeError"),
    ],
)
def test_a_factory_that_returns_something_else_is_refused_before_a_model_is_built(
    catalog, factory, error, text
):
    catalog.register_action_dist("own", factory, num_inputs=3)
    with pytest.raises(error, match=text):
        rlcatalog.build(env=Anything(FREE), config={"custom_action_dist": "own"}, catalog=catalog)


def test_the_number_of_inputs_may_depend_on_the_space(catalog):
    @catalog.register_action_dist(
        "full", num_inputs=lambda space: space.shape[0] * (space.shape[0] + 1)
    )
    def full(x):
        n = int(x.shape[1] ** 0.5)
        return td.MultivariateNormal(
            x[:, :n],
            scale_tril=td.transform_to(td.constraints.lower_cholesky)(x[:, n:].reshape(-1, n, n)),
        )

    for n in (1, 3):
        space = Box(-1, 1, (n,), np.float32)
        cls, size = catalog.action_dist(space, {"custom_action_dist": "full"}, framework="torch")
        assert size == n * (n + 1)
        dist = cls(torch.zeros(5, size), None)  # unit covariance
        expected = stats.multivariate_normal(np.zeros(n)).logpdf(np.full(n, 0.5))
        np.testing.assert_allclose(
            dist.logp(torch.full((5, n), 0.5)), np.full(5, expected), rtol=1e-5
        )


def test_one_serves_a_part_of_a_dict(catalog):
    space = Dict({"go": Discrete(3), "far": POSITIVE})
    config = {"custom_action_dist": {"action['far']": td.Gamma}}
    cls, size = catalog.action_dist(space, config, framework="torch")
    assert size == 3 + 4
    x = torch.randn(20, size)
    dist = cls(x, None)
    torch.manual_seed(0)
    drawn = dist.sample()
    far, go = td.Gamma(x[:, :2].exp(), x[:, 2:4].exp()), td.Categorical(logits=x[:, 4:])
    expected = far.log_prob(drawn["far"]).sum(-1) + go.log_prob(drawn["go"])
    torch.testing.assert_close(dist.logp(drawn), expected)
    torch.testing.assert_close(dist.entropy(), far.entropy().sum(-1) + go.entropy())


def test_another_framework_is_refused(catalog):
    with pytest.raises(NotServedError, match="has no code for framework='tf'"):
        catalog.action_dist(FREE, {"custom_action_dist": td.Laplace}, framework="tf")


def test_arguments_in_double_and_half_precision(catalog):
    cls, size = catalog.action_dist(FREE, {"custom_action_dist": td.Laplace}, framework="torch")
    x = torch.randn(4, size, dtype=torch.float64)
    drawn = cls(x, None).sample()
    np.testing.assert_allclose(
        cls(x, None).logp(drawn),
        stats.laplace(x[:, :2], x[:, 2:].exp()).logpdf(drawn).sum(1),
        rtol=1e-12,
    )
    assert cls(x.half(), None).logp(drawn).dtype is torch.float32
