"""A long run: parts of an action that depend on one another reach what independent ones cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_the_head_reaches_the_optimum_and_independent_choices_do_not(framework, seed):
    """In one run: the bound that the example derives holds for independent choices, and the head passes it."""
    import autoregressive_action_dist as duet

    found = {}
    for joint in (True, False):
        algo = duet.train(framework, joint, 40, seed)
        assert algo.policy.explain().as_dict()["head"]["chosen"] == ("autoregressive" if joint else None)
        found[joint] = duet.expected_return(algo)
        assert np.mean(algo.evaluate(100)) <= 1.0  # greedy, it plays one song twice
        algo.stop()
    assert found[True] >= 0.95 * duet.OPTIMUM
    assert 0.9 <= found[False] <= duet.BOUND
    assert duet.BOUND < 0.95 * duet.OPTIMUM


def test_the_bound_of_independent_choices_holds_for_any_of_them():
    """Random pairs of distributions over the songs, and the pairs nearest to the bound."""
    import autoregressive_action_dist as duet

    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet([0.1] * duet.SONGS, 200_000) for _ in range(2))
    for other in (q, p):
        d = p * other
        assert (2 * d - d**2).sum(axis=1).max() <= duet.BOUND
    d = np.full(duet.SONGS, 1 / duet.SONGS)
    assert (2 * d - d**2).sum() == pytest.approx(duet.OPTIMUM)
