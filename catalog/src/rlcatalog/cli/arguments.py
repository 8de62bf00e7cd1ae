"""Arguments of commands: `KEY=VALUE` options, and environments by id."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from rlcatalog.errors import ConfigError, UnknownNameError, reason, shown


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


def look_here(module: str) -> None:
    """Let a module that was named and lies in the working folder be found, as `python` finds it; others come first."""
    root, here = module.partition(".")[0], Path.cwd()
    if not root.isidentifier() or not ((here / f"{root}.py").is_file() or (here / root / "__init__.py").is_file()):
        return
    if str(here) not in sys.path and importlib.util.find_spec(root) is None:
        sys.path.append(str(here))


def make_env(env_id: str, **arguments: Any) -> Any:
    """Make a Gymnasium environment.

    Raises:
        UnknownNameError: Gymnasium does not know it, or cannot make it.
    """
    import gymnasium

    module, colon, _ = env_id.partition(":")
    if colon:
        look_here(module)
    try:
        return gymnasium.make(env_id, **arguments)
    except (Exception, SystemExit) as error:  # of Gymnasium about the id, of a module it names, of the environment
        hint = ""
        if isinstance(error, gymnasium.error.UnregisteredEnv) and ":" not in env_id:
            hint = f" Where a package registers it when imported, name the package: PACKAGE:{env_id}."
        text = f"Environment {shown(env_id)} cannot be made: {reason(error)}{hint}"
        raise UnknownNameError(text) from error
