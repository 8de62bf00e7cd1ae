"""JSON that files hold, which has no word for NaN and infinity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_line(result: Mapping[str, Any]) -> str:
    """Return what an iteration reported as a line of valid JSON, its end included; NaN and infinities are null."""
    return json.dumps(_finite(result), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
