"""Rules of the model config in Stable-Baselines3's own files, so that a loaded algorithm acts as it
did even if a later version of rlcatalog has other defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from rlcatalog.config import RULES
from rlcatalog_policy import UNSAVED_RULES
from rlcatalog_sb3.spaces import Origin

#: Keys whose defaults here follow Stable-Baselines3's own nets → their values in files from before
#: they were kept. Some of them decide which layers a model has, and so which weights fit.
_UNSAVED_ENGINE_KEYS: dict[str, Any] = {
    "init": "normc",
    "memory_first": False,
    "lstm_two_biases": False,
}
#: The algorithm's attribute with the rules. Stable-Baselines3 saves all attributes, and restores
#: them before it builds the policy.
_RULES_ATTRIBUTE = "rlcatalog_rules"


def find_rules(algorithm: BaseAlgorithm | None, origin: Origin | None) -> dict[str, Any]:
    """Return the rules that a loaded policy was built with; empty for a new policy.

    Args:
        algorithm: The algorithm that builds the policy, if any.
        origin: Origin of flat spaces, or None. The policy reads raw actions by the same rules as
            their environment.
    """
    rules: dict[str, Any] = {}
    if algorithm is not None:
        # A new algorithm has made no step. One that has made steps was loaded from a file, and a
        # file of an earlier version has no such attribute.
        is_loaded = algorithm.num_timesteps > 0
        saved_rules = getattr(algorithm, _RULES_ATTRIBUTE, UNSAVED_RULES if is_loaded else None)
        if saved_rules is not None:
            rules = with_unsaved_keys(saved_rules)
    if origin is not None:
        for key in RULES:
            if key in origin.encoding:
                rules[key] = origin.encoding[key]
    return rules


def keep_rules(algorithm: BaseAlgorithm | None, config: Mapping[str, Any]) -> None:
    """Store the rules of a model config in the algorithm, where Stable-Baselines3 saves them."""
    if algorithm is not None:
        setattr(algorithm, _RULES_ATTRIBUTE, rules_of(config))


def rules_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rules of a model config, and its values of keys that have defaults here."""
    # Without rlcatalog-lstm, its key does not exist.
    return {key: config[key] for key in (*RULES, *_UNSAVED_ENGINE_KEYS) if key in config}


def with_unsaved_keys(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return rules from a file; rules that an earlier version did not save get its values."""
    return {**_UNSAVED_ENGINE_KEYS, **rules}
