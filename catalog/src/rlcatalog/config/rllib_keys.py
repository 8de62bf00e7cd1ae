"""RLlib config keys that rlcatalog does not have, and their replacements, from `rllib_keys.json`.

`docs/config.md` has a row for each key; a test compares them.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from rlcatalog.config.values import same

_DATA: dict[str, Any] = json.loads(
    (resources.files(__package__) / "rllib_keys.json").read_text(encoding="utf-8")
)

#: Old key → current key, or the keys that it was split into; each gets its value.
RENAMED: dict[str, list[str]] = _DATA["renamed"]
#: Keys accepted without effect, with a DeprecationWarning: key → reason.
IGNORED: dict[str, str] = _DATA["ignored"]
#: Refused keys: key → what to do instead.
REFUSED: dict[str, str] = _DATA["refused"]
#: The keys of RLlib's model config, 2017 to today, each with its last default that was a value.
#: RLlib passes whole dictionaries, so a key with its default value was not set by the user.
RLLIB_DEFAULTS: dict[str, Any] = _DATA["defaults"]
#: Old key → current key with the same value, for models that read the old key.
OLD_NAMES = {"custom_options": "custom_model_config"}

#: RLlib's marker for a deprecated key that is not set.
_NOT_GIVEN = -1


def translate(key: str, value: Any) -> Any:
    """Return the value of the current key that corresponds to an old key's value."""
    if key == "always_check_shapes":
        return "always" if value else "first"
    return value


def asks_nothing(key: str, value: Any) -> bool:
    """Return whether an unknown RLlib key has no effect: its value is RLlib's default, or a marker
    for "not given".

    Args:
        key: The key.
        value: Its value, already `plain`.
    """
    if key in RLLIB_DEFAULTS and same(value, RLLIB_DEFAULTS[key]):
        return True
    is_of_rllib = key in RENAMED or key in IGNORED or key in REFUSED
    is_set = value is not None and not same(value, _NOT_GIVEN)
    return is_of_rllib and not is_set
