"""Environments that break Gymnasium's habits train in Stable-Baselines3 after `for_sb3`."""

from __future__ import annotations

import pytest
import stable_baselines3
from odd_environments import (
    OddUnwrapped,
    RaisingAttributes,
    WithoutGenerator,
    WithoutMetadata,
)

from rlcatalog_sb3 import CatalogPolicy, for_sb3


@pytest.mark.parametrize(
    "env", [WithoutGenerator, OddUnwrapped, WithoutMetadata, RaisingAttributes]
)
def test_odd_environment_trains_in_sb3(env):
    algo = stable_baselines3.PPO(CatalogPolicy, for_sb3(env()), n_steps=16, batch_size=16)
    algo.learn(16)
    assert algo.num_timesteps == 16
