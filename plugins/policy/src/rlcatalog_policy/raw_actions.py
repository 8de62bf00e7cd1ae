"""Conversion of an environment's actions to raw actions, for data that rlcatalog did not record."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

import rlcatalog_policy
from rlcatalog.actions import ActionCodec
from rlcatalog.errors import ActionError, NotServedError, shown
from rlcatalog.frameworks import ops_of
from rlcatalog.internals import KINDS, blame_part, stack
from rlcatalog.observations import Array, rows
from rlcatalog.plugins import Part
from rlcatalog.spaces import SpaceInfo, map_tensors


def raw_actions(policy: rlcatalog_policy.Policy, actions: Any) -> Array:
    """Return the raw actions for an environment's actions; see `Policy.raw_action`."""
    codec = policy.action_codec
    batch = _batch(codec.info, actions)
    for leaf, actions_of_leaf in codec.leaf_actions(batch):
        if (part := _part(policy, leaf.info)) is not None:
            _try(leaf, actions_of_leaf, part)
    return codec.invert(batch)


# --- forms of raw actions -------------------------------------------------------------------------


def _batch(info: SpaceInfo, actions: Any) -> Any:
    """Return one action, a list of actions or a batch as a batch, in the form that a vector
    environment accepts.
    """
    is_list = isinstance(actions, list)
    if is_list and (
        not actions
        or (info.is_composite and all(isinstance(one, tuple | Mapping) for one in actions))
    ):
        try:
            return stack(info, actions)
        except (ValueError, KeyError, TypeError) as error:
            raise ActionError(
                f"actions: {info.path}: this list has actions outside {info.describe()}: {error}"
            ) from error
    actions = map_tensors(actions, _array)
    single = _is_single(info, actions)
    if single or (single is None and info.space.contains(actions)):
        with suppress(ValueError, KeyError, TypeError):  # the codec will raise the error
            return stack(info, [actions])
    return actions


def _is_single(info: SpaceInfo, actions: Any) -> bool | None:
    """Return whether this is one action, judging by the axes of the first entry with a shape; None
    if none has one.
    """
    if info.is_composite:
        parts = (_is_single(child, part) for child, part in _parts(info, actions))
        return next((single for single in parts if single is not None), None)
    with suppress(ValueError):  # lists of different lengths; the codec will raise the error
        return None if info.shape is None else np.ndim(actions) == len(info.shape)
    return False


def _parts(info: SpaceInfo, actions: Any) -> list[tuple[SpaceInfo, Any]]:
    """Return the entries that exist; the codec reports missing ones."""
    if info.keys:
        given = actions if isinstance(actions, Mapping) else {}
        return [
            (child, given[key])
            for key, child in zip(info.keys, info.children, strict=True)
            if key in given
        ]
    return (
        list(zip(info.children, actions, strict=False)) if isinstance(actions, tuple | list) else []
    )


def _array(values: Any) -> Array:
    """Return an array or tensor as an array."""
    array: Array | None = values if isinstance(values, np.ndarray) else ops_of(values).array(values)
    if array is None:
        raise ActionError(
            f"actions: expected values, found a tensor from a trace, {shown(values)}."
        )
    return array


# --- codecs of plugins ----------------------------------------------------------------------------


def _part(policy: rlcatalog_policy.Policy, info: SpaceInfo) -> Part | None:
    """Return the plugin's part for a leaf's actions; None if the kernel handles them."""
    by_kind = {
        kind: c for c in policy.catalog.parts("action_codec") for kind in c.declaration.kinds
    }
    known = (
        by_kind.get(name) or by_kind.get(KINDS.get(name, "")) for name in (*info.classes, info.kind)
    )
    return next((part for part in known if part is not None), None)


def _try(codec: ActionCodec, actions: Any, part: Part) -> None:
    """Raise an error unless a plugin's codec returns raw actions that it converts back to the same
    actions.

    Raises:
        ActionError: The actions are not in the space.
        NotServedError: The codec has no inverse.
        PartError: The codec's inverse is wrong, or raised an unexpected error.
    """
    who = f"{type(codec).__name__} of {part.provider} (action_codec {part.name!r})"
    keep = "store step.raw_action from Policy.act"
    with blame_part(part, f"{type(codec).__name__}.invert()"):
        try:
            raw = codec.invert(actions)
        except NotImplementedError as error:
            why = f": {error} So" if isinstance(error, NotServedError) else ";"
            raise NotServedError(f"{codec.info.path}: {who} has no inverse{why} {keep}.") from error
    if getattr(raw, "shape", None) != (len(actions), codec.width):
        raise part.fault(
            f"{type(codec).__name__}.invert() must return an array of shape"
            f" {(len(actions), codec.width)} for {len(actions)} actions of {codec.info.describe()};"
            f" found {shown(getattr(raw, 'shape', raw), 80)}."
        )
    with blame_part(part, f"{type(codec).__name__}.adapt()"):
        again = list(rows(codec.info, codec.adapt(raw)))
    for row, (one, other) in enumerate(zip(rows(codec.info, actions), again, strict=True)):
        if _same(one, other):
            continue
        if not codec.info.space.contains(one):
            raise ActionError(
                f"actions: {codec.info.path}: expected actions of {codec.info.describe()}; found"
                f" {shown(one, 120)} in row {row}."
            )
        if _defines(codec, "adapt") < _defines(codec, "invert"):
            raise NotServedError(
                f"{codec.info.path}: {who} has no inverse: it defines adapt() but not invert();"
                f" {keep}."
            )
        raise part.fault(
            f"{type(codec).__name__}.invert() of {shown(one, 120)} gives"
            f" {shown(raw[row].tolist(), 120)}, which adapt() turns into {shown(other, 120)};"
            f" {keep}."
        )


def _defines(codec: ActionCodec, method: str) -> int:
    """Return the MRO index of the class that defines a method; 0 is the codec's own class."""
    return next(i for i, cls in enumerate(type(codec).__mro__) if method in vars(cls))


def _same(one: Any, other: Any) -> bool:
    """Return whether two values of a space are equal up to rounding."""
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(_same(one[k], other[k]) for k in one)
        )
    if isinstance(one, tuple | list) and not isinstance(other, np.ndarray):
        return (
            isinstance(other, tuple | list)
            and len(one) == len(other)
            and all(map(_same, one, other))
        )
    with suppress(TypeError, ValueError):  # not numbers
        return bool(
            np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-4, atol=1e-5)
        )
    return bool(np.array_equal(one, other))
