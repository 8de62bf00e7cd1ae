"""Long runs with two choices that depend on one another, with and without a head for them."""

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
def test_only_a_head_beats_the_bound_of_independent_choices(over_seeds, framework, head):
    import autoregressive_action_dist as duet

    def train(seed):
        # With or without the head, for 40 iterations.
        algo = duet.train(framework, head is not None, 40, seed)
        assert algo.policy.explain().as_dict()["head"]["chosen"] == head
        assert np.mean(algo.evaluate(100)) <= 1.0  # greedy, it plays one song twice
        algo.stop()
        return duet.expected_return(algo)

    # The example derives the bound that independent choices cannot exceed. The mark in the record
    # must be above it for the head, and equal to it otherwise.
    if not over_seeds.sweep:
        mark = over_seeds.record.mark
        assert mark > duet.BOUND if head else mark == pytest.approx(duet.BOUND)
    over_seeds(train, chance=lambda: random_play(duet.Duet))


def test_independent_choices_stay_below_the_bound():
    import autoregressive_action_dist as duet

    # Random distributions over the songs, for two players.
    rng = np.random.default_rng(0)
    first = rng.dirichlet([0.1] * duet.SONGS, 200_000)
    second = rng.dirichlet([0.1] * duet.SONGS, 200_000)
    for other in (first, second):
        both_play = first * other  # chance that both choose a song, for each song
        # The mean return of an evening, as the example derives it.
        returns = (2 * both_play - both_play**2).sum(axis=1)
        assert returns.max() <= duet.BOUND


def test_choices_that_depend_on_one_another_reach_the_optimum():
    import autoregressive_action_dist as duet

    both_play = np.full(duet.SONGS, 1 / duet.SONGS)
    assert (2 * both_play - both_play**2).sum() == pytest.approx(duet.OPTIMUM)
