"""RLlib config keys that rlcatalog does not have, and their replacements, from `rllib_keys.json`.

`docs/config.md` has a row for each; a test compares.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from rlcatalog.config.values import same

_DATA: dict[str, Any] = json.loads((resources.files(__package__) / "rllib_keys.json").read_text(encoding="utf-8"))

#: Old key → today's key, or the keys that it was split into; each takes its value.
RENAMED: dict[str, list[str]] = _DATA["renamed"]
#: Accepted with a DeprecationWarning and without effect, and why.
IGNORED: dict[str, str] = _DATA["ignored"]
#: Refused, and what to do instead.
REFUSED: dict[str, str] = _DATA["refused"]
#: The keys of RLlib's model config, 2017 to today, with the last default that was a value. RLlib hands whole
#: dictionaries about, so a key that holds its default was not asked for.
RLLIB_DEFAULTS: dict[str, Any] = _DATA["defaults"]
#: Old key → today's key that a model may read it under: what it holds is the same.
OLD_NAMES = {"custom_options": "custom_model_config"}

#: RLlib's mark of a key that is deprecated and was not given.
_NOT_GIVEN = -1


def translate(key: str, value: Any) -> Any:
    """Return the value of the current key for the value of an old key."""
    return value if key != "always_check_shapes" else "always" if value else "first"


def asks_nothing(key: str, value: Any) -> bool:
    """Whether an unknown RLlib key has no effect: it holds RLlib's default, or a marker for "not given".

    Args:
        key: The key.
        value: Its value, already `plain`.
    """
    if key in RLLIB_DEFAULTS and same(value, RLLIB_DEFAULTS[key]):
        return True
    return (key in RENAMED or key in IGNORED or key in REFUSED) and (value is None or same(value, _NOT_GIVEN))
