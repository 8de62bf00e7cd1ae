"""Config keys of the filters."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class FiltersConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of `MeanStdFilter` in a policy."""

    filter_include: Annotated[
        list[str] | None,
        Meta(description="paths of the leaves to filter, or starts of them; all quantities when missing"),
    ] = None
    filter_exclude: Annotated[
        list[str], Meta(description="paths of leaves to leave as they are, or starts of them; wins over filter_include")
    ] = []
    filter_clip: Annotated[
        Annotated[float, Meta(gt=0.0)] | None,
        Meta(description="filtered values are cut off at plus and minus this; None: not at all"),
    ] = 10.0
