"""Random functions of PyTorch that draw from given noise: distributions, and unsupported ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from rlcatalog.errors import NotServedError  # noqa: E402
from rlcatalog_export.torch.noise import TorchNoise  # noqa: E402

ROWS = 200_000


def draw_from_noise(draw):
    """Call a function with random functions that read noise.

    Returns:
        What it drew for 200,000 rows, and how many numbers of the noise each row took.
    """
    counting = TorchNoise(ROWS)
    with counting:
        draw()
    width = sum(counting.widths)
    noise = torch.from_numpy(np.random.default_rng(0).random((ROWS, width), np.float32))
    with TorchNoise(ROWS, noise):
        values = draw()
    with TorchNoise(ROWS, noise):
        assert torch.equal(draw(), values)  # the same noise gives the same values
    return values.numpy(), width


def draw_gamma(concentration):
    return torch._standard_gamma(torch.full((ROWS, 1), concentration))


def draw_normal_with_tensors():
    return torch.normal(torch.full((ROWS, 1), 2.0), torch.full((ROWS, 1), 3.0))


def sample_beta():
    beta = torch.distributions.Beta(torch.full((ROWS, 1), 2.0), torch.full((ROWS, 1), 3.0))
    return beta.sample()


@pytest.mark.parametrize(
    ("draw", "distribution", "width"),
    [
        pytest.param(lambda: torch.rand(ROWS, 1), stats.uniform, 1, id="rand"),
        pytest.param(
            lambda: torch.rand_like(torch.zeros(ROWS, 1)), stats.uniform, 1, id="rand_like"
        ),
        pytest.param(
            lambda: torch.empty(ROWS, 1).uniform_(-1, 3), stats.uniform(-1, 4), 1, id="uniform_"
        ),
        pytest.param(lambda: torch.randn(ROWS, 1), stats.norm, 2, id="randn"),
        pytest.param(lambda: torch.randn_like(torch.zeros(ROWS)), stats.norm, 2, id="randn_like"),
        pytest.param(lambda: torch.empty(ROWS, 1).normal_(2, 3), stats.norm(2, 3), 2, id="normal_"),
        pytest.param(draw_normal_with_tensors, stats.norm(2, 3), 2, id="normal"),
        pytest.param(
            lambda: torch.empty(ROWS, 1).exponential_(2.0),
            stats.expon(scale=1 / 2),
            1,
            id="exponential_",
        ),
        pytest.param(lambda: draw_gamma(0.3), stats.gamma(0.3), 17, id="gamma-below-1"),
        pytest.param(lambda: draw_gamma(1.0), stats.gamma(1.0), 17, id="gamma"),
        pytest.param(lambda: draw_gamma(6.5), stats.gamma(6.5), 17, id="gamma-above-1"),
        pytest.param(
            lambda: torch.distributions.Normal(torch.zeros(ROWS, 1), 1.0).sample(),
            stats.norm,
            2,
            id="Normal",
        ),
        pytest.param(sample_beta, stats.beta(2, 3), 34, id="Beta"),  # of two gammas
    ],
)
def test_numbers_follow_their_distribution(draw, distribution, width):
    values, width_of_noise = draw_from_noise(draw)

    assert width_of_noise == width
    assert stats.kstest(values.ravel(), distribution.cdf).pvalue > 1e-4


def test_normal_numbers_of_a_row_are_independent():
    values, width = draw_from_noise(lambda: torch.randn(ROWS, 3))

    assert width == 4  # normal numbers come in pairs
    assert np.abs(np.corrcoef(values.T) - np.eye(3)).max() < 0.06
    assert np.abs(np.corrcoef(values.T**2) - np.eye(3)).max() < 0.06


def make_probabilities():
    """Return the probabilities of 0, 1 and 2, for each row."""
    return torch.tensor([[0.2, 0.0, 0.8]]).expand(ROWS, 3)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda: torch.multinomial(make_probabilities(), 1)[:, 0], id="multinomial"),
        pytest.param(
            lambda: torch.distributions.Categorical(make_probabilities()).sample(),
            id="Categorical",
        ),
        # 0 or 1, doubled
        pytest.param(lambda: 2 * torch.bernoulli(torch.full((ROWS,), 0.8)), id="bernoulli"),
        pytest.param(lambda: 2 * torch.empty(ROWS).bernoulli_(0.8), id="bernoulli_"),
    ],
)
def test_choices_follow_their_probabilities(draw):
    values, _ = draw_from_noise(draw)

    zeros, ones, twos = np.bincount(values.astype(int), minlength=3)
    assert ones == 0
    assert stats.chisquare([zeros, twos], [0.2 * ROWS, 0.8 * ROWS]).pvalue > 1e-4


def test_noise_of_zero_and_one_gives_finite_normal_numbers():
    ends = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])

    with TorchNoise(3, ends):
        values = torch.randn(3, 1)

    assert values.isfinite().all()


def test_noise_of_zero_and_one_gives_finite_exponential_numbers():
    ends = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])

    with TorchNoise(3, ends):
        values = torch.empty(3, 2).exponential_()

    assert values.isfinite().all()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        pytest.param(lambda: torch.randint(3, (2,)), r"randint\(\)", id="randint"),
        pytest.param(
            lambda: torch.rand(3), "the first axis must index the rows", id="3-for-2-rows"
        ),
        pytest.param(
            lambda: torch.multinomial(torch.ones(2, 3), 2),
            "needs replacement=True",
            id="multinomial-without-replacement",
        ),
    ],
)
def test_unsupported_draws_are_errors(draw, message):
    with pytest.raises(NotServedError, match=message), TorchNoise(2):
        draw()
