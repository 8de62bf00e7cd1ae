"""Long runs of a thermostat whose action bounds are far from [-1, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.thermostat import ENGINES, evaluate, evaluate_random

pytestmark = [
    # RLlib registers its environment runner's environment anew for each run.
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-single-agent-env-v0"),
    pytest.mark.learn,
    pytest.mark.xdist_group("ray"),  # one Ray serves all
    pytest.mark.usefixtures("one_thread"),
]
SEEDS = range(5)
#: Engine → package that it needs.
PACKAGES = {"ppo": "rlcatalog_ppo", "sb3": "stable_baselines3", "rllib": "ray.rllib"}


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("engine", PACKAGES)
def test_thermostat_gains_as_much_as_the_rescaled_task(engine):
    pytest.importorskip(PACKAGES[engine], reason=f"{engine} is not installed")
    chance = evaluate_random()

    def mean_gain(is_rescaled):
        """Return how much better than chance the policies of all seeds are."""
        returns = [evaluate(ENGINES[engine](is_rescaled, seed), is_rescaled) for seed in SEEDS]
        return np.mean(returns) - chance

    gain_of_rescaled = mean_gain(is_rescaled=True)
    # The best return is 0. Half of the gain shows that the rescaled task was learned at all.
    assert gain_of_rescaled > 0.5 * (0 - chance)
    assert mean_gain(is_rescaled=False) >= 0.9 * gain_of_rescaled


def test_thermostat_that_only_clips_gains_nothing():
    chance = evaluate_random()
    with pytest.warns(UserWarning, match="nearly all actions are at a bound"):
        policy = ENGINES["ppo-clip"](False, 0)
    assert evaluate(policy, is_rescaled=False) < chance
