"""A long run: parts of an action that depend on one another reach what independent ones cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from learning import random_play

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("head", ["autoregressive", None])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_head_beats_the_bound_of_independent_choices(over_seeds, framework, head):
    """The mark of independent choices is the bound that the example derives, the head's lies beyond
    it.
    """
    import autoregressive_action_dist as duet

    def train(seed):
        algo = duet.train(framework, head is not None, 40, seed)
        assert algo.policy.explain().as_dict()["head"]["chosen"] == head
        assert np.mean(algo.evaluate(100)) <= 1.0  # greedy, it plays one song twice
        algo.stop()
        return duet.expected_return(algo)

    if not over_seeds.sweep:
        mark = over_seeds.record.mark
        assert mark > duet.BOUND if head else mark == pytest.approx(duet.BOUND)
    over_seeds(train, chance=lambda: random_play(duet.Duet))


def test_independent_choices_stay_below_the_bound():
    """Random pairs of distributions over the songs, and the pairs nearest to the bound."""
    import autoregressive_action_dist as duet

    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet([0.1] * duet.SONGS, 200_000) for _ in range(2))
    for other in (q, p):
        d = p * other
        assert (2 * d - d**2).sum(axis=1).max() <= duet.BOUND
    d = np.full(duet.SONGS, 1 / duet.SONGS)
    assert (2 * d - d**2).sum() == pytest.approx(duet.OPTIMUM)
