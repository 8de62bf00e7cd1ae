"""Module checkpoints: the stored identity, and checks that a checkpoint matches the module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog import Policy
from rlcatalog.choice import MODEL_SLOTS
from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import same_space, space_to_json

#: Entry in a module's state with its spaces and parts, as JSON in an array of bytes.
IDENTITY = "rlcatalog.identity"
#: Prefix of weights that only learners have.
_TARGET = "target."


def identity(policy: Policy) -> np.ndarray[Any, Any]:
    """Return a policy's spaces and its model's parts, as JSON in a byte array."""
    return np.frombuffer(json.dumps(_description(policy)).encode(), np.uint8).copy()


def check_same(policy: Policy, found: Any) -> None:
    """Raise an error unless a state was saved by a module with the same spaces and parts.

    Args:
        policy: The policy in this process.
        found: The state's `identity`, or None.

    Raises:
        SavedPolicyError: The spaces or parts differ.
    """
    if found is None:
        return
    here, there = _description(policy), json.loads(np.asarray(found, np.uint8).tobytes())
    for name, what in (
        ("observation_space", "observation space"),
        ("action_space", "action space"),
    ):
        if not same_space(here[name], there[name]):
            raise SavedPolicyError(
                f"this checkpoint belongs to a different environment: its {what} is"
                f" {there[f'{name}_text']}, but {here[f'{name}_text']} here."
            )
    if here["parts"] != there["parts"]:
        raise SavedPolicyError(
            "this checkpoint belongs to a different model: its parts are"
            f" {_listed(there['parts'])}, but here they are {_listed(here['parts'])}. Use the"
            " model config of the run that wrote it."
        )


def check_weights(
    have: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise an error unless weights have the same names and shapes as the module's; target networks
    may be missing.

    Raises:
        SavedPolicyError: Names or shapes differ.
    """
    missing = sorted(name for name in set(have) - set(given) if not name.startswith(_TARGET))
    unknown = sorted(name for name in set(given) - set(have) if not name.startswith(_TARGET))
    wrong = [
        f"{name}: {given[name]} instead of {have[name]}"
        for name in sorted(set(have) & set(given))
        if tuple(have[name]) != tuple(given[name])
    ]
    if missing or unknown or wrong:
        raise SavedPolicyError(
            f"these weights belong to a different model. Missing: {missing or 'none'}; unknown:"
            f" {unknown or 'none'}; wrong shape: {wrong or 'none'}. Use the model config of the"
            " run that wrote them."
        )


def _description(policy: Policy) -> dict[str, Any]:
    spaces = {"observation_space": policy.observation_space, "action_space": policy.action_space}
    found: dict[str, Any] = {f"{name}_text": str(space) for name, space in spaces.items()}
    for name, space in spaces.items():
        data = space_to_json(space)  # None for a plugin's kind of space, which is compared by text
        found[name] = str(space) if data is None else data
    found["parts"] = {
        slot: part.name for slot, part in policy.resolution.parts_by_slot(*MODEL_SLOTS).items()
    }
    return found


def _listed(parts: Mapping[str, str]) -> str:
    return ", ".join(f"{slot} {name!r}" for slot, name in parts.items())
