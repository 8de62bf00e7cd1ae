"""Config keys for the filters."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class FiltersConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for `MeanStdFilter` in a policy."""

    filter_include: Annotated[
        list[str] | None,
        Meta(
            description="paths of the parts to filter; by default, all quantities except images and"
            " integers between 0 and 1"
        ),
    ] = None
    filter_exclude: Annotated[
        list[str],
        Meta(description="paths of parts to leave unchanged; overrides filter_include"),
    ] = []
    filter_clip: Annotated[
        Annotated[float, Meta(gt=0.0)] | None,
        Meta(description="clip filtered values to ± this number; None: no clipping"),
    ] = 10.0
