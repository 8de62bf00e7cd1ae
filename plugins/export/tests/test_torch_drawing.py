"""Drawing from given noise in PyTorch: each function's distribution against SciPy's, and what is
refused.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from rlcatalog.errors import NotServedError  # noqa: E402
from rlcatalog_export.torch.noise import TorchNoise  # noqa: E402

ROWS = 200_000


def drawn(draw):
    """Return what a function draws for rows of noise, and how many numbers a row took."""
    counting = TorchNoise(ROWS)
    with counting:
        draw()
    noise = torch.from_numpy(
        np.random.default_rng(0).random((ROWS, sum(counting.widths)), np.float32)
    )
    first, second = TorchNoise(ROWS, noise), TorchNoise(ROWS, noise)
    with first:
        found = draw()
    with second:
        assert torch.equal(draw(), found)  # of the same noise the same
    return found.numpy(), sum(counting.widths)


def gamma(a):
    return lambda: torch._standard_gamma(torch.full((ROWS, 1), a))


CONTINUOUS = {
    "rand": (lambda: torch.rand(ROWS, 1), stats.uniform, 1),
    "rand_like": (lambda: torch.rand_like(torch.zeros(ROWS, 1)), stats.uniform, 1),
    "uniform_": (lambda: torch.empty(ROWS, 1).uniform_(-1, 3), stats.uniform(-1, 4), 1),
    "randn": (lambda: torch.randn(ROWS, 1), stats.norm, 2),
    "randn_like": (lambda: torch.randn_like(torch.zeros(ROWS)), stats.norm, 2),
    "normal_": (lambda: torch.empty(ROWS, 1).normal_(2, 3), stats.norm(2, 3), 2),
    "normal": (
        lambda: torch.normal(torch.full((ROWS, 1), 2.0), torch.full((ROWS, 1), 3.0)),
        stats.norm(2, 3),
        2,
    ),
    "exponential_": (lambda: torch.empty(ROWS, 1).exponential_(2.0), stats.expon(scale=0.5), 1),
    "gamma below 1": (gamma(0.3), stats.gamma(0.3), 17),
    "gamma": (gamma(1.0), stats.gamma(1.0), 17),
    "gamma above 1": (gamma(6.5), stats.gamma(6.5), 17),
    "Normal": (
        lambda: torch.distributions.Normal(torch.zeros(ROWS, 1), 1.0).sample(),
        stats.norm,
        2,
    ),
    "Beta": (
        lambda: torch.distributions.Beta(
            torch.full((ROWS, 1), 2.0), torch.full((ROWS, 1), 3.0)
        ).sample(),
        stats.beta(2, 3),
        34,
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_drawn_from_their_distribution(name):
    draw, truth, width = CONTINUOUS[name]
    found, taken = drawn(draw)
    assert taken == width
    assert stats.kstest(found.ravel(), truth.cdf).pvalue > 1e-4


def test_several_normal_numbers_of_a_row_do_not_depend_on_one_another():
    found, width = drawn(lambda: torch.randn(ROWS, 3))
    assert width == 4
    assert np.abs(np.corrcoef(found.T) - np.eye(3)).max() < 0.06
    assert np.abs(np.corrcoef(found.T**2) - np.eye(3)).max() < 0.06


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.multinomial(torch.tensor([[0.2, 0.0, 0.8]]).expand(ROWS, 3), 1)[:, 0],
        lambda: torch.distributions.Categorical(
            torch.tensor([[0.2, 0.0, 0.8]]).expand(ROWS, 3)
        ).sample(),
        lambda: 2 * torch.bernoulli(torch.full((ROWS,), 0.8)),
        lambda: 2 * torch.empty(ROWS).bernoulli_(0.8),
    ],
)
def test_choices_are_drawn_as_often_as_their_probabilities_say(draw):
    counts = np.bincount(drawn(draw)[0].astype(int), minlength=3)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2]], [0.2 * ROWS, 0.8 * ROWS]).pvalue > 1e-4


def test_noise_at_the_ends_gives_numbers():
    ends = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    with TorchNoise(3, ends):
        assert torch.randn(3, 1).isfinite().all()
    with TorchNoise(3, ends):
        assert torch.empty(3, 2).exponential_().isfinite().all()


def test_what_cannot_be_drawn_so_is_refused():
    with pytest.raises(NotServedError, match=r"randint\(\)"), TorchNoise(2):
        torch.randint(3, (2,))
    with pytest.raises(NotServedError, match="the first axis must index the rows"), TorchNoise(2):
        torch.rand(3)
    with pytest.raises(NotServedError, match="needs replacement=True"), TorchNoise(2):
        torch.multinomial(torch.ones(2, 3), 2)
