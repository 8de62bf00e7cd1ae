"""Config keys of this package: limits on the log standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog.config import read_config
from rlcatalog.errors import ConfigError
from rlcatalog_gaussian.numeric_limits import MAX_LOG_STD, SQUASHED_LOG_STD


class GaussianConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the Gaussian distributions."""

    gaussian_log_std_min: Annotated[
        float | None, Meta(description="lower limit of the log standard deviation")
    ] = None
    gaussian_log_std_max: Annotated[
        float | None, Meta(description="upper limit of the log standard deviation")
    ] = None

    def __post_init__(self) -> None:
        low = self.gaussian_log_std_min
        high = self.gaussian_log_std_max
        if low is not None and high is not None and low > high:
            raise ConfigError(
                f"gaussian_log_std_min must not be above gaussian_log_std_max, found {low} and"
                f" {high}."
            )


def limits(config: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits from a model config as keyword arguments for the distributions."""
    own = read_config(config, GaussianConfig)
    arguments = {}
    if own.gaussian_log_std_min is not None:
        arguments["log_std_min"] = own.gaussian_log_std_min
    if own.gaussian_log_std_max is not None:
        arguments["log_std_max"] = own.gaussian_log_std_max
    return arguments


def clip_range(
    low: float | None, high: float | None, least: float, most: float
) -> tuple[float, float]:
    """Return the clip range for log standard deviations: the requested limits, within [least,
    most].

    Args:
        low: Requested lower limit, or None.
        high: Requested upper limit, or None.
        least: Lowest possible limit; used if `low` is None.
        most: Highest possible limit; used if `high` is None.

    Raises:
        ConfigError: The requested limits are in the wrong order.
    """
    if low is not None and high is not None and low > high:
        raise ConfigError(f"log_std_min must not be above log_std_max, found {low} and {high}.")
    lowest = least
    if low is not None:
        lowest = min(max(low, least), most)
    highest = most
    if high is not None:
        highest = min(max(high, least), most)
    return lowest, highest


def squashed_clip_range(low: float | None, high: float | None) -> tuple[float, float]:
    """Return the clip range for a squashed Gaussian; RLlib's limits are the defaults.

    Raises:
        ConfigError: The requested limits are in the wrong order.
    """
    if low is None and high is None:
        return SQUASHED_LOG_STD
    default_low, default_high = SQUASHED_LOG_STD
    if low is None:
        low = default_low
    if high is None:
        high = default_high
    return clip_range(low, high, least=-MAX_LOG_STD / 2, most=MAX_LOG_STD / 2)
