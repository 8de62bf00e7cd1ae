"""Config keys of this package."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class CategoricalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys of `categorical`."""

    categorical_temperature: Annotated[
        float,
        Meta(
            gt=0.0,
            description="divisor of the logits; above 1 flattens the distribution, below 1"
            " sharpens it",
        ),
    ] = 1.0


class QuantilesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys of `quantiles`."""

    num_quantiles: Annotated[
        int, Meta(ge=1, description="number of quantiles of the return for each action")
    ] = 200


class GumbelSoftmaxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys of `gumbel_softmax`."""

    gumbel_softmax_temperature: Annotated[
        float,
        Meta(
            gt=0.0,
            description="relaxation temperature: near 0, samples are close to one-hot vectors",
        ),
    ] = 1.0
