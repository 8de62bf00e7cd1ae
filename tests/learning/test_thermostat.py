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
    gains = {
        is_rescaled: [
            evaluate(ENGINES[engine](is_rescaled, seed), is_rescaled) - chance for seed in SEEDS
        ]
        for is_rescaled in (False, True)
    }
    # The best reward is 0. Half of the gain shows that the rescaled task was learned at all.
    assert np.mean(gains[True]) > 0.5 * -chance
    assert np.mean(gains[False]) >= 0.9 * np.mean(gains[True])


def test_thermostat_that_only_clips_gains_nothing():
    chance = evaluate_random()
    with pytest.warns(UserWarning, match="nearly all actions are at a bound"):
        policy = ENGINES["ppo-clip"](False, 0)
    assert evaluate(policy, is_rescaled=False) < chance
