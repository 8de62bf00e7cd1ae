"""Module checkpoints: the stored identity, and checks that a checkpoint matches the module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog import Policy
from rlcatalog.choice import MODEL_SLOTS
from rlcatalog.errors import SavedPolicyError
from rlcatalog.frameworks import Array
from rlcatalog.plugins import Part
from rlcatalog_policy import same_space, space_to_json
from rlcatalog_rllib.spaces import Space

#: Entry in a module's state with its spaces and parts, as JSON in an array of bytes.
IDENTITY = "rlcatalog.identity"
#: Prefix of weights that only learners have.
_TARGET = "target."


def identity(policy: Policy) -> Array:
    """Return a policy's spaces and its model's parts, as JSON in a byte array."""
    text = json.dumps(_description(policy))
    return np.frombuffer(text.encode(), np.uint8).copy()


def check_same(policy: Policy, identity_of_state: Array | None) -> None:
    """Raise an error unless a state was saved by a module with the same spaces and parts.

    Args:
        policy: The policy in this process.
        identity_of_state: The state's `identity`, or None.

    Raises:
        SavedPolicyError: The spaces or parts differ.
    """
    if identity_of_state is None:  # as in the state that a learner sends to runners
        return
    here = _description(policy)
    json_of_state = np.asarray(identity_of_state, np.uint8).tobytes()
    there = json.loads(json_of_state)
    for key in ("observation_space", "action_space"):
        if not same_space(here[key], there[key]):
            text_key = key + "_text"
            raise SavedPolicyError(
                f"this checkpoint belongs to a different environment: its {key.replace('_', ' ')}"
                f" is {there[text_key]}, but {here[text_key]} here."
            )
    _check_same_parts("its parts", here["parts"], there["parts"])
    if "critic" in there:  # earlier versions did not save it
        _check_same_parts("its critic's parts", here["critic"], there["critic"])


def _check_same_parts(what: str, here: Mapping[str, str], there: Mapping[str, str]) -> None:
    """Raise an error unless the parts in a state are those of the module.

    Args:
        what: Which parts these are.
        here: Slot → name of each part of the module.
        there: Slot → name of each part in the state.

    Raises:
        SavedPolicyError: They differ.
    """
    if here != there:
        raise SavedPolicyError(
            f"this checkpoint belongs to a different model: {what} are {_list_parts(there)}, but"
            f" here they are {_list_parts(here)}. Use the model config of the run that wrote it."
        )


def check_weights(
    module_shapes: Mapping[str, tuple[int, ...]], state_shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise an error unless the weights in a state have the same names and shapes as the module's;
    target networks may be missing.

    Args:
        module_shapes: Shapes of the module's weights.
        state_shapes: Shapes of the weights in the state.

    Raises:
        SavedPolicyError: Names or shapes differ.
    """
    missing = _names_in_first_only(module_shapes, state_shapes)
    unknown = _names_in_first_only(state_shapes, module_shapes)
    wrong = []
    for name in sorted(module_shapes.keys() & state_shapes.keys()):
        if module_shapes[name] != state_shapes[name]:
            wrong.append(f"{name}: {state_shapes[name]} instead of {module_shapes[name]}")
    if missing or unknown or wrong:
        raise SavedPolicyError(
            f"these weights belong to a different model. Missing: {missing or 'none'}; unknown:"
            f" {unknown or 'none'}; wrong shape: {wrong or 'none'}. Use the model config of the"
            " run that wrote them."
        )


def _names_in_first_only(
    first: Mapping[str, tuple[int, ...]], second: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Return the weights that only the first of two models has, except target networks'."""
    names = sorted(first.keys() - second.keys())
    return [name for name in names if not name.startswith(_TARGET)]


def _description(policy: Policy) -> dict[str, Any]:
    """Return a policy's spaces and its model's parts as plain data."""
    resolution = policy.resolution
    parts_of_critic: Mapping[str, Part] = {}
    if resolution.critic is not None:
        parts_of_critic = resolution.critic.parts_by_slot(*MODEL_SLOTS)
    return {
        "observation_space_text": str(policy.observation_space),
        "action_space_text": str(policy.action_space),
        "observation_space": _space_data(policy.observation_space),
        "action_space": _space_data(policy.action_space),
        "parts": _names(resolution.parts_by_slot(*MODEL_SLOTS)),
        "critic": _names(parts_of_critic),
    }


def _names(parts: Mapping[str, Part]) -> dict[str, str]:
    return {slot: part.name for slot, part in parts.items()}


def _space_data(space: Space) -> Any:
    """Return a space as plain data; as text if its kind belongs to a plugin."""
    data = space_to_json(space)
    return str(space) if data is None else data


def _list_parts(parts: Mapping[str, str]) -> str:
    return ", ".join(f"{slot} {name!r}" for slot, name in parts.items()) or "none"
