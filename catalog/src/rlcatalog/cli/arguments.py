"""Arguments of commands: `KEY=VALUE` options, and environments by id."""

from __future__ import annotations

import json
from typing import Any

from rlcatalog.errors import ConfigError, UnknownNameError


def key_values(options: list[str], option: str) -> dict[str, Any]:
    """Parse `KEY=VALUE` options; values are JSON (`[64, 64]`, `true`, `0.5`), anything else is text.

    Args:
        options: The options' values.
        option: The option's name, for messages.

    Raises:
        ConfigError: One has no `=`, or a key stands twice.
    """
    found: dict[str, Any] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option}: expected KEY=VALUE, found {text!r}.")
        if key in found:
            raise ConfigError(f"{option}: {key!r} is given twice.")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def make_env(env_id: str, **arguments: Any) -> Any:
    """Make a Gymnasium environment.

    Raises:
        UnknownNameError: Gymnasium does not know it, or cannot make it.
    """
    import gymnasium

    try:
        return gymnasium.make(env_id, **arguments)
    except (gymnasium.error.Error, ImportError) as error:
        hint = ""
        if isinstance(error, gymnasium.error.UnregisteredEnv) and ":" not in env_id:
            hint = f" Where a package registers it when imported, name the package: PACKAGE:{env_id}."
        text = f"Environment {env_id!r} cannot be made: {type(error).__name__}: {error}{hint}"
        raise UnknownNameError(text) from error
