"""Arguments of commands: `KEY=VALUE` options."""

from __future__ import annotations

import json
from typing import Any

from rlcatalog.errors import ConfigError, shown


def key_values(options: list[str], option: str) -> dict[str, Any]:
    """Parse `KEY=VALUE` options; values are JSON (`[64, 64]`, `true`, `0.5`), anything else is text.

    Args:
        options: The options' values.
        option: The option's name, for messages.

    Raises:
        ConfigError: One has no `=`, a key stands twice, or a value is nested too deep.
    """
    found: dict[str, Any] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option}: expected KEY=VALUE, found {shown(text)}.")
        if key in found:
            raise ConfigError(f"{option}: {shown(key)} is given twice.")
        try:
            found[key] = _value(value)
        except RecursionError:
            raise ConfigError(f"{option}: the value of {shown(key)} is nested too deep.") from None
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
