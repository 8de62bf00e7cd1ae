"""Numbers and names of RLlib's."""

from __future__ import annotations

from typing import TypeVar

FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38
SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT = -5, 2
DEFAULT_POLICY_ID = "default_policy"
LEARNER_INFO, LEARNER_STATS_KEY = "learner", "learner_stats"
ATARI_OBS_SHAPE, ATARI_RAM_OBS_SHAPE = (210, 160, 3), (128,)


T = TypeVar("T")
