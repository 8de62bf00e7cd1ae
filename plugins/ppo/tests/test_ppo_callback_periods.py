"""Periods of callbacks, such as an evaluation every 10 steps."""

import pytest

from rlcatalog.errors import ConfigError
from rlcatalog_ppo.callbacks import Every


def test_period_is_due_once_when_complete():
    every = Every(10)

    due = [steps for steps in (0, 9, 10, 10, 19, 20, 45, 49, 50) if every.advance(steps)]

    assert due == [10, 20, 45, 50]  # 45 completes the third and the fourth


def test_period_of_zero_is_never_due():
    never = Every(0)

    assert not never.advance(0)
    assert not never.advance(1)
    assert not never.advance(10**9)


def test_negative_period_is_an_error():
    with pytest.raises(ConfigError, match="every -1 steps: expected 1 or more, or 0"):
        Every(-1)
