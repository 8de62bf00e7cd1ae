"""`as_torch()` of every distribution, against SciPy, exhaustive sums, sampling, and the catalog
itself.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from action_kinds import ACTIONS, DEPENDENT, Anything, named
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import special, stats
from torch import distributions as td

import rlcatalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog_torch import TorchDistribution, as_torch, flat_sample

ROWS = 6
PAIR = Box(np.array([-2.0, 0.5], np.float32), np.array([3.0, 4.0], np.float32))
CHOICES = Tuple([Discrete(3), MultiBinary(2), MultiDiscrete([2, 3])])


def dist_of(space, config=None, seed=0):
    """Return the distribution that the catalog chooses, of inputs `[ROWS, n]`."""
    cls, size = rlcatalog.default_catalog().action_dist(space, config or {}, framework="torch")
    return cls(torch.randn(ROWS, size, generator=torch.Generator().manual_seed(seed)), None)


def dependent(space, config, seed=0):
    """Return the distribution of an action whose parts depend on one another, with the model it
    needs.
    """
    torch.manual_seed(seed)
    policy = rlcatalog.build(env=Anything(space), config=config | {"fcnet_hiddens": [8]})
    for weight in policy.model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    obs = torch.randn(ROWS, 2)
    outputs, _ = policy.model({"obs": obs}, [], None)
    return policy.dist_class(outputs.detach(), policy.model)


@pytest.mark.parametrize("case", [*ACTIONS, *DEPENDENT])
def test_it_scores_draws_and_compares_as_the_catalogs_does(case):
    make = dist_of if case in ACTIONS else dependent
    space, config = (ACTIONS if case in ACTIONS else DEPENDENT)[case]
    dist, other = make(space, config, 0), make(space, config, 0 if case in DEPENDENT else 1)
    view = dist.as_torch()
    assert isinstance(dist, TorchDistribution)
    assert view.batch_shape == (ROWS,)
    drawn = flat_sample(dist.sample())
    assert view.sample().shape == drawn.shape
    torch.testing.assert_close(
        view.log_prob(drawn), dist.logp(drawn), rtol=1e-4, atol=1e-4, check_dtype=False
    )
    several = view.sample((2, 3))
    scores = view.log_prob(several)
    assert several.shape == (2, 3, *drawn.shape)
    assert scores.shape == (2, 3, ROWS)
    torch.testing.assert_close(
        scores[1, 2], dist.logp(several[1, 2]), rtol=1e-4, atol=1e-4, check_dtype=False
    )
    for mine, its in (
        (dist.entropy, view.entropy),
        (lambda: dist.kl(other), lambda: as_kl(view, other)),
    ):
        try:
            expected = mine()
        except NoClosedFormError:
            with pytest.raises(NotImplementedError):
                its()
        else:
            torch.testing.assert_close(its(), expected, rtol=1e-4, atol=1e-4)


def as_kl(view, other):
    """Return torch's divergence to another distribution of the catalog's."""
    return td.kl_divergence(view, other.as_torch())


def test_a_view_leaves_the_last_sample_and_the_generator_as_they_are():
    dist = dependent(MultiDiscrete([2, 3]), DEPENDENT["multi_discrete, autoregressive"][1])
    drawn = dist.sample()
    before = torch.get_rng_state()
    view = dist.as_torch()
    assert (torch.get_rng_state() == before).all()
    view.sample((3,))
    assert dist.last_sample is drawn
    torch.testing.assert_close(dist.sampled_action_logp(), view.log_prob(drawn))


def all_actions(view):
    """Return all raw actions of a distribution over few choices, `[n, *event]`."""
    counts = {(): (4,), (7,): (3, 2, 2, 2, 3, 4, 4), (5,): (3, 2, 2, 2, 3), (2,): (4, 4)}[
        tuple(view.event_shape)
    ]
    grid = torch.tensor(list(itertools.product(*map(range, counts))))
    return grid if view.event_shape else grid[:, 0]


#: Name → a distribution over choices with a mask, and whether it allows an action `[..., width]`.
MASKED = {
    "categorical": (Discrete(4), {}, [1, 0, 1, 1], lambda a: a[..., 0] != 1),
    "slates": (
        MultiDiscrete([4, 4]),
        named("slate_multi_categorical"),
        [1, 1, 0, 1, 0, 1, 1, 1],
        lambda a: (a[..., 0] != a[..., 1]) & (a[..., 0] != 2) & (a[..., 1] != 0),
    ),
    "tuple": (
        CHOICES,
        {},
        [1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1],
        lambda a: (a[..., 0] != 2) & (a[..., 1] == 0) & (a[..., 3] == 1),
    ),
    "autoregressive tuple": (
        CHOICES,
        {"use_autoregressive": True},
        [1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1],
        lambda a: (a[..., 0] != 2) & (a[..., 1] == 0) & (a[..., 3] == 1),
    ),
}


def masked(case):
    """Return a masked distribution, and its mask."""
    space, config, mask, _ = MASKED[case]
    dist = dependent(space, config) if config.get("use_autoregressive") else dist_of(space, config)
    cls, size = type(dist), dist.inputs.shape[1]
    if config.get("use_autoregressive"):
        options = {"layout": dist.layout}
    else:
        bound, wanted = rlcatalog.default_catalog().action_dist(space, config, framework="torch")
        assert wanted == size
        options = getattr(bound, "options", {})
    allowed = torch.tensor(mask, dtype=torch.bool).expand(ROWS, len(mask))
    return cls(cls.masked(dist.inputs, allowed, **options), dist.model, **options)


@pytest.mark.parametrize("case", MASKED)
def test_masked_choices_sum_to_one_over_what_is_allowed(case):
    view = masked(case).as_torch()
    actions = all_actions(view)
    wide = actions[:, None].expand(len(actions), ROWS, *view.event_shape)
    probs = view.log_prob(wide).exp().detach()
    flat = actions if view.event_shape else actions[:, None]
    allowed = MASKED[case][3](flat)
    assert (probs[~allowed] == 0).all()
    torch.testing.assert_close(probs[allowed].sum(0), torch.ones(ROWS), rtol=1e-5, atol=1e-5)
    if case == "categorical":
        inputs = dist_of(Discrete(4)).inputs.double().numpy()
        expected = special.softmax(np.where([True, False, True, True], inputs, -np.inf), axis=1)
        np.testing.assert_allclose(probs.T, expected, atol=1e-6)
    torch.manual_seed(1)
    drawn = view.sample((700,))
    assert MASKED[case][3](drawn if view.event_shape else drawn[..., None]).all()
    frequency = torch.stack(
        [(drawn == w).reshape(700, ROWS, -1).all(-1).float().mean(0) for w in wide]
    )
    assert (frequency - probs).abs().max() < 5 * (0.25 / 700) ** 0.5
    entropy = -(probs * probs.clamp(min=1e-30).log()).sum(0)
    torch.testing.assert_close(view.entropy().detach(), entropy, rtol=1e-4, atol=1e-4)
    if case != "autoregressive tuple":
        torch.testing.assert_close(
            view.mode.float().reshape(ROWS, -1), flat[probs.argmax(0)].float()
        )


#: Name → action space, config, and SciPy's distributions `[ROWS, d]` of the inputs.
MOMENTS = {
    "gaussian": (PAIR, {}, lambda x: stats.norm(x[:, :2], np.exp(x[:, 2:]))),
    "beta": (
        PAIR,
        named("beta"),
        lambda x: stats.beta(
            1 + np.log1p(np.exp(x[:, :2])),
            1 + np.log1p(np.exp(x[:, 2:])),
            loc=PAIR.low,
            scale=PAIR.high - PAIR.low,
        ),
    ),
    "bits": (MultiBinary(3), {}, lambda x: stats.bernoulli(special.expit(x))),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_mean_and_deviation_are_scipys(case):
    space, config, truth = MOMENTS[case]
    dist = dist_of(space, config)
    view, expected = dist.as_torch(), truth(dist.inputs.double().numpy())
    np.testing.assert_allclose(view.mean, expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(view.stddev, expected.std(), rtol=1e-4)
    score = expected.logpdf if hasattr(expected.dist, "logpdf") else expected.logpmf
    drawn = view.sample()
    np.testing.assert_allclose(
        view.log_prob(drawn), score(drawn.double().numpy()).sum(1), rtol=1e-4, atol=1e-4
    )
    assert (view.log_prob(view.mode) >= view.log_prob(view.sample((50,))) - 1e-5).all()


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_mean_and_deviation_of_shares_are_scipys(shape):
    dist = dist_of(rlcatalog.spaces.Simplex(shape))
    view = dist.as_torch()
    rows = dist.concentration.double().numpy()
    for row, part in itertools.product(range(ROWS), range(rows.shape[1])):
        expected, columns = stats.dirichlet(rows[row, part]), slice(part * 3, part * 3 + 3)
        np.testing.assert_allclose(view.mean[row, columns], expected.mean(), rtol=1e-5)
        np.testing.assert_allclose(view.variance[row, columns], expected.var(), rtol=1e-4)


def test_parts_side_by_side_have_the_moments_of_each():
    space = Dict({"aim": PAIR, "bits": MultiBinary(2), "more": Tuple([Box(-1, 1, (), np.float32)])})
    view = dist_of(space).as_torch()
    torch.manual_seed(0)
    drawn = view.sample((6_000,))
    error = view.stddev / 6_000**0.5
    assert ((drawn.mean(0) - view.mean).abs() < 5 * error).all()
    np.testing.assert_allclose(drawn.std(0), view.stddev, rtol=0.05)
    assert view.mode.shape == view.mean.shape == (ROWS, 5)


def test_a_point_has_its_moments():
    dist = dist_of(PAIR, named("deterministic"))
    view = dist.as_torch()
    for found, expected in (
        (view.mean, dist.inputs),
        (view.mode, dist.inputs),
        (view.stddev, 0 * dist.inputs),
    ):
        torch.testing.assert_close(found, expected)


def test_what_has_no_closed_form_is_not_implemented():
    view = dist_of(PAIR, named("squashed_gaussian")).as_torch()
    for name in ("mean", "variance", "stddev", "mode"):
        with pytest.raises(
            NotImplementedError, match=r"SquashedGaussian has no closed form for its \w+"
        ):
            getattr(view, name)
    choices = dist_of(MultiDiscrete([4, 4]), named("slate_multi_categorical")).as_torch()
    with pytest.raises(NotImplementedError, match="draws without gradients"):
        choices.rsample()


@pytest.mark.parametrize("config", [{}, named("squashed_gaussian"), named("beta")])
def test_gradients_pass_through_rsample(config):
    cls, size = rlcatalog.default_catalog().action_dist(PAIR, config, framework="torch")
    inputs = torch.zeros(ROWS, size, requires_grad=True)
    view = cls(inputs, None).as_torch()
    assert view.has_rsample
    (gradient,) = torch.autograd.grad(view.rsample((4,)).sum(), inputs)
    assert (gradient != 0).any()
    assert not view.sample().requires_grad


def test_one_of_a_users_own_is_seen_as_torchs_too():
    class Uniform(rlcatalog.ActionDistribution):
        def sample(self):
            return torch.randint(self.inputs.shape[1], self.inputs.shape[:1])

        def deterministic_sample(self):
            return self.inputs.argmax(1)

        def logp(self, actions):
            return torch.full(self.inputs.shape[:1], -np.log(self.inputs.shape[1]))

    view = as_torch(Uniform(torch.zeros(3, 5)))
    torch.testing.assert_close(
        view.log_prob(view.sample((2,))), torch.full((2, 3), -np.log(5.0), dtype=torch.float32)
    )
