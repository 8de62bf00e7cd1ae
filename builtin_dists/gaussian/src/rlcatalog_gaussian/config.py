"""Config keys of this package: limits on the log standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog.config import read_config
from rlcatalog.errors import ConfigError
from rlcatalog_gaussian.plugin import MAX_LOG_STD, SQUASHED_LOG_STD


class GaussianConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the Gaussian distributions."""

    gaussian_log_std_min: Annotated[
        float | None, Meta(description="lower limit of the log standard deviation")
    ] = None
    gaussian_log_std_max: Annotated[
        float | None, Meta(description="upper limit of the log standard deviation")
    ] = None

    def __post_init__(self) -> None:
        low, high = self.gaussian_log_std_min, self.gaussian_log_std_max
        if low is not None and high is not None and low > high:
            raise ConfigError(
                f"gaussian_log_std_min must not be above gaussian_log_std_max, found {low} and"
                f" {high}."
            )


def limits(config: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits from a model config as keyword arguments for the distributions."""
    own = read_config(config, GaussianConfig)
    found = {"log_std_min": own.gaussian_log_std_min, "log_std_max": own.gaussian_log_std_max}
    return {name: value for name, value in found.items() if value is not None}


def clipping(
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
    bounds = [
        bound if limit is None else min(max(limit, least), most)
        for limit, bound in ((low, least), (high, most))
    ]
    return bounds[0], bounds[1]


def squashed_clipping(low: float | None, high: float | None) -> tuple[float, float]:
    """Return the clip range for a squashed Gaussian; RLlib's limits are the defaults.

    Raises:
        ConfigError: The requested limits are in the wrong order.
    """
    if low is None and high is None:
        return SQUASHED_LOG_STD
    least, most = SQUASHED_LOG_STD
    low, high = least if low is None else low, most if high is None else high
    return clipping(low, high, -MAX_LOG_STD / 2, MAX_LOG_STD / 2)
