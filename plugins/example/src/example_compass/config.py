"""Config keys that this package owns."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class CompassConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the gated network."""

    example_compass_width: Annotated[int, Meta(ge=1, description="width of the gated layer")] = 64
