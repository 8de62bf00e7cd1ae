"""Distributions as those of PyTorch, by `as_torch()`, against SciPy and sums over all actions."""

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
from rlcatalog.spaces import Simplex
from rlcatalog_torch import TorchDistribution, as_torch, flat_sample

PAIR = Box(np.array([-2.0, 0.5], np.float32), np.array([3.0, 4.0], np.float32))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def find_distribution(space, config):
    return rlcatalog.default_catalog().action_dist(space, config, framework="torch")


def make_independent(space, config=None, seed=0):
    """Create the distribution that the catalog chooses, with random inputs for six rows."""
    cls, size = find_distribution(space, config or {})
    generator = torch.Generator().manual_seed(seed)
    return cls(torch.randn(6, size, generator=generator), None)


def make_dependent(space, config, seed=0):
    """Create an autoregressive distribution for six rows, with the model that it needs."""
    torch.manual_seed(seed)
    policy = rlcatalog.build(env=Anything(space), config={**config, "fcnet_hiddens": [8]})
    for weight in policy.model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    outputs, _ = policy.model({"obs": torch.randn(6, 2)}, [], None)
    return policy.dist_class(outputs.detach(), policy.model)


def make_dist(case, seed=0):
    """Create the distribution of a case, independent or not."""
    if case in ACTIONS:
        return make_independent(*ACTIONS[case], seed)
    return make_dependent(*DEPENDENT[case], seed=0)


each_case = pytest.mark.parametrize("case", [*ACTIONS, *DEPENDENT])


# --- any distribution -----------------------------------------------------------------------------


@each_case
def test_view_samples_like_the_distribution(case):
    dist = make_dist(case)

    view = dist.as_torch()

    assert isinstance(dist, TorchDistribution)
    assert view.batch_shape == (6,)
    assert view.sample().shape == flat_sample(dist.sample()).shape


@each_case
def test_view_scores_like_the_distribution(case):
    dist = make_dist(case)
    sample = flat_sample(dist.sample())

    log_prob = dist.as_torch().log_prob(sample)

    torch.testing.assert_close(log_prob, dist.logp(sample), rtol=1e-4, atol=1e-4, check_dtype=False)


@each_case
def test_view_scores_samples_with_more_axes(case):
    dist = make_dist(case)
    view = dist.as_torch()

    samples = view.sample((2, 3))  # 2 times 3 samples of each of the six rows
    log_probs = view.log_prob(samples)

    assert samples.shape == (2, 3, *view.sample().shape)
    assert log_probs.shape == (2, 3, 6)
    last_logp = dist.logp(samples[1, 2])
    torch.testing.assert_close(log_probs[1, 2], last_logp, rtol=1e-4, atol=1e-4, check_dtype=False)


@each_case
def test_view_has_the_entropy_of_the_distribution(case):
    dist = make_dist(case)
    view = dist.as_torch()

    try:
        expected = dist.entropy()
    except NoClosedFormError:
        with pytest.raises(NotImplementedError):
            view.entropy()
    else:
        torch.testing.assert_close(view.entropy(), expected, rtol=1e-4, atol=1e-4)


@each_case
def test_view_has_the_kl_of_the_distribution(case):
    dist = make_dist(case, seed=0)
    other = make_dist(case, seed=1)

    try:
        expected = dist.kl(other)
    except NoClosedFormError:
        with pytest.raises(NotImplementedError):
            td.kl_divergence(dist.as_torch(), other.as_torch())
    else:
        kl = td.kl_divergence(dist.as_torch(), other.as_torch())
        torch.testing.assert_close(kl, expected, rtol=1e-4, atol=1e-4)


def test_view_does_not_use_the_random_generator():
    dist = make_dependent(*DEPENDENT["multi_discrete, autoregressive"])
    before = torch.get_rng_state()

    dist.as_torch()

    assert (torch.get_rng_state() == before).all()


def test_view_keeps_the_last_sample():
    dist = make_dependent(*DEPENDENT["multi_discrete, autoregressive"])
    sample = dist.sample()

    view = dist.as_torch()
    view.sample((3,))

    assert dist.last_sample is sample
    torch.testing.assert_close(dist.sampled_action_logp(), view.log_prob(sample))


def test_view_of_a_user_distribution():
    class UniformOfFive(rlcatalog.ActionDistribution):
        def sample(self):
            return torch.randint(5, [len(self.inputs)])

        def deterministic_sample(self):
            return torch.zeros(len(self.inputs), dtype=torch.int64)

        def logp(self, actions):
            return torch.full([len(self.inputs)], -np.log(5))

    view = as_torch(UniformOfFive(torch.zeros(3, 5)))
    log_probs = view.log_prob(view.sample((2,)))

    # Each of the five actions has the probability 1/5.
    expected = torch.full((2, 3), -np.log(5), dtype=torch.float32)
    torch.testing.assert_close(log_probs, expected)


# --- masks ----------------------------------------------------------------------------------------

#: A choice of 3, two bits, and choices of 2 and of 3.
CHOICES = Tuple([Discrete(3), MultiBinary(2), MultiDiscrete([2, 3])])
#: Columns: values of the first choice; for each bit may be 0 and may be 1; values of the others.
MASK_OF_CHOICES = [1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1]


def may_be_chosen(actions):
    """Return which actions MASK_OF_CHOICES allows."""
    return (actions[:, 0] != 2) & (actions[:, 1] == 0) & (actions[:, 3] == 1)


def is_slate(actions):
    """Return which pairs are distinct, without item 2 at first and item 0 at second place."""
    first, second = actions.T
    return (first != second) & (first != 2) & (second != 0)


#: Name → action space, config, mask, numbers of values, and which actions `[n, width]` are allowed.
MASKED = {
    "categorical": (Discrete(4), {}, [1, 0, 1, 1], [4], lambda actions: actions[:, 0] != 1),
    "slates": (
        MultiDiscrete([4, 4]),
        named("slate_multi_categorical"),
        [1, 1, 0, 1, 0, 1, 1, 1],
        [4, 4],
        is_slate,
    ),
    "tuple": (CHOICES, {}, MASK_OF_CHOICES, [3, 2, 2, 2, 3], may_be_chosen),
    "autoregressive": (
        CHOICES,
        {"use_autoregressive": True},
        MASK_OF_CHOICES,
        [3, 2, 2, 2, 3],
        may_be_chosen,
    ),
}
each_masked = pytest.mark.parametrize("case", MASKED)


def make_masked_view(case):
    """Return the view of a masked distribution for six rows."""
    space, config, mask, _, _ = MASKED[case]
    if case == "autoregressive":
        dist = make_dependent(space, config)
        options = {"layout": dist.layout}
    else:
        dist = make_independent(space, config)
        bound_class, _ = find_distribution(space, config)
        options = getattr(bound_class, "options", {})
    allowed = torch.tensor(mask, dtype=torch.bool).expand(6, len(mask))
    inputs = type(dist).masked(dist.inputs, allowed, **options)
    return type(dist)(inputs, dist.model, **options).as_torch()


def all_actions(case):
    """Return all actions `[n, width]`, and whether each is allowed."""
    _, _, _, counts, is_allowed = MASKED[case]
    actions = torch.tensor(list(itertools.product(*map(range, counts))))
    return actions, is_allowed(actions)


def probabilities_of_all(case, view):
    """Return the probability of each action in each row, `[n, 6]`."""
    actions, _ = all_actions(case)
    in_each_row = actions[:, None].expand(len(actions), 6, actions.shape[1])
    return view.log_prob(in_each_row.reshape(len(actions), 6, *view.event_shape)).exp().detach()


@each_masked
def test_masked_probabilities_sum_to_one_over_allowed_actions(case):
    probabilities = probabilities_of_all(case, make_masked_view(case))

    _, is_allowed = all_actions(case)
    total = probabilities[is_allowed].sum(0)
    assert (probabilities[~is_allowed] == 0).all()
    torch.testing.assert_close(total, torch.ones(6), rtol=1e-5, atol=1e-5)


def test_masked_probabilities_of_categorical_match_scipy():
    probabilities = probabilities_of_all("categorical", make_masked_view("categorical"))

    logits = make_independent(Discrete(4)).inputs.double().numpy()
    logits[:, 1] = -np.inf  # the mask forbids value 1
    np.testing.assert_allclose(probabilities.T, special.softmax(logits, axis=1), atol=1e-6)


@each_masked
def test_masked_samples_are_as_frequent_as_probable(case):
    view = make_masked_view(case)
    actions, _ = all_actions(case)
    probabilities = probabilities_of_all(case, view)

    # A frequency in 700 samples varies most at a probability of 1/2, where p (1 - p) is 0.25.
    largest_standard_error = (0.25 / 700) ** 0.5

    samples = view.sample((700,)).reshape(700, 6, -1)  # 700 samples of each of the six rows

    for action, probability in zip(actions, probabilities, strict=True):
        frequency = (samples == action).all(dim=2).float().mean(dim=0)
        error = (frequency - probability).abs().max()
        assert error < 5 * largest_standard_error


@each_masked
def test_masked_samples_are_allowed(case):
    _, _, _, _, is_allowed = MASKED[case]

    samples = make_masked_view(case).sample((700,))

    assert is_allowed(samples.reshape(700 * 6, -1)).all()


@each_masked
def test_masked_entropy_is_sum_over_actions(case):
    view = make_masked_view(case)

    probabilities = probabilities_of_all(case, view)

    expected = -torch.special.xlogy(probabilities, probabilities).sum(0)
    torch.testing.assert_close(view.entropy().detach(), expected, rtol=1e-4, atol=1e-4)


# An autoregressive mode is chosen part by part.
@pytest.mark.parametrize("case", ["categorical", "slates", "tuple"])
def test_masked_mode_is_most_likely_action(case):
    view = make_masked_view(case)

    actions, _ = all_actions(case)
    most_likely = actions[probabilities_of_all(case, view).argmax(0)]

    torch.testing.assert_close(view.mode.float().reshape(6, -1), most_likely.float())


# --- moments --------------------------------------------------------------------------------------


def scipy_gaussian(inputs):
    return stats.norm(inputs[:, :2], np.exp(inputs[:, 2:]))


def scipy_beta(inputs):
    """Return Beta distributions between PAIR's bounds."""
    first = 1 + np.log1p(np.exp(inputs[:, :2]))
    second = 1 + np.log1p(np.exp(inputs[:, 2:]))
    return stats.beta(first, second, loc=PAIR.low, scale=PAIR.high - PAIR.low)


def scipy_bits(inputs):
    return stats.bernoulli(special.expit(inputs))


each_moment = pytest.mark.parametrize(
    ("space", "config", "make_exact"),
    [
        (PAIR, {}, scipy_gaussian),
        (PAIR, named("beta"), scipy_beta),
        (MultiBinary(3), {}, scipy_bits),
    ],
    ids=["gaussian", "beta", "bits"],
)


@each_moment
def test_mean_and_stddev_match_scipy(space, config, make_exact):
    dist = make_independent(space, config)

    view = dist.as_torch()

    exact = make_exact(dist.inputs.double().numpy())
    np.testing.assert_allclose(view.mean, exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(view.stddev, exact.std(), rtol=1e-4)


@each_moment
def test_log_prob_matches_scipy(space, config, make_exact):
    dist = make_independent(space, config)
    view = dist.as_torch()
    sample = view.sample()

    exact = make_exact(dist.inputs.double().numpy())
    score = exact.logpmf if make_exact is scipy_bits else exact.logpdf
    expected = score(sample.double().numpy()).sum(1)
    np.testing.assert_allclose(view.log_prob(sample), expected, rtol=1e-4, atol=1e-4)


@each_moment
def test_mode_is_more_likely_than_samples(space, config, make_exact):
    view = make_independent(space, config).as_torch()

    assert (view.log_prob(view.mode) >= view.log_prob(view.sample((50,))) - 1e-5).all()


@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=str)
def test_moments_of_shares_match_scipy(shape):
    dist = make_independent(Simplex(shape))
    view = dist.as_torch()
    concentration = dist.concentration.double().numpy()  # [rows, simplexes, 3]

    for row, simplex in np.ndindex(concentration.shape[:2]):
        exact = stats.dirichlet(concentration[row, simplex])
        columns = slice(simplex * 3, simplex * 3 + 3)
        np.testing.assert_allclose(view.mean[row, columns], exact.mean(), rtol=1e-5)
        np.testing.assert_allclose(view.variance[row, columns], exact.var(), rtol=1e-4)


def test_moments_of_dict_are_those_of_its_samples():
    space = Dict({"aim": PAIR, "bits": MultiBinary(2), "more": Tuple([Box(-1, 1, (), np.float32)])})
    view = make_independent(space).as_torch()

    samples = view.sample((6_000,))

    assert samples.shape == (6_000, 6, 5)  # 6 rows of 2 + 2 + 1 values
    standard_error = view.stddev / 6_000**0.5
    assert ((samples.mean(0) - view.mean).abs() < 5 * standard_error).all()
    np.testing.assert_allclose(samples.std(0), view.stddev, rtol=0.05)


def test_moments_of_a_point():
    dist = make_independent(PAIR, named("deterministic"))

    view = dist.as_torch()

    torch.testing.assert_close(view.mean, dist.inputs)
    torch.testing.assert_close(view.mode, dist.inputs)
    torch.testing.assert_close(view.stddev, torch.zeros_like(dist.inputs))


@pytest.mark.parametrize("name", ["mean", "variance", "stddev", "mode"])
def test_moment_without_closed_form_is_not_implemented(name):
    view = make_independent(PAIR, named("squashed_gaussian")).as_torch()

    with pytest.raises(NotImplementedError, match="SquashedGaussian has no closed form"):
        getattr(view, name)


def test_rsample_of_choices_is_not_implemented():
    view = make_independent(MultiDiscrete([4, 4]), named("slate_multi_categorical")).as_torch()

    with pytest.raises(NotImplementedError, match="draws without gradients"):
        view.rsample()


@pytest.mark.parametrize(
    "config",
    [{}, named("squashed_gaussian"), named("beta")],
    ids=["gaussian", "squashed_gaussian", "beta"],
)
def test_rsample_has_gradients_and_sample_has_none(config):
    cls, size = find_distribution(PAIR, config)
    inputs = torch.zeros(6, size, requires_grad=True)
    view = cls(inputs, None).as_torch()

    (gradient,) = torch.autograd.grad(view.rsample((4,)).sum(), inputs)

    assert view.has_rsample
    assert (gradient != 0).any()
    assert not view.sample().requires_grad
