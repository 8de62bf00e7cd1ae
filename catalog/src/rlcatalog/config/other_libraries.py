"""Words of other libraries that users write into a config, and what they are called here.

They are only used in messages: a config that contains one is always refused.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

_DATA: dict[str, Any] = json.loads(
    (resources.files(__package__) / "other_libraries.json").read_text(encoding="utf-8")
)

#: Word for a setting of the model → the sentence that names our key.
MODEL_WORDS: dict[str, str] = _DATA["model"]
_ALGORITHM_WORDS = frozenset(_DATA["algorithm"])


def advice_for(key: object) -> str:
    """Return a sentence, after a space, about another library's word in a model config; `""` for
    other words.

    Args:
        key: The unknown key.
    """
    if not isinstance(key, str):
        return ""
    if key in MODEL_WORDS:
        return f" {MODEL_WORDS[key]}"
    if key in _ALGORITHM_WORDS:
        return (
            f" It is a setting of the algorithm, not of the model: give {key!r} to the algorithm,"
            " outside of the model config."
        )
    return ""
