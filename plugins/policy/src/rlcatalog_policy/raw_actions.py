"""Conversion of an environment's actions to raw actions, for data that rlcatalog did not record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rlcatalog.actions import ActionCodec
from rlcatalog.errors import ActionError, NotServedError, shown
from rlcatalog.frameworks import Tensor, ops_of
from rlcatalog.internals import KINDS, blame_part
from rlcatalog.observations import Array, rows, stack
from rlcatalog.plugins import Part
from rlcatalog.spaces import SpaceInfo, map_tensors
from rlcatalog_policy.encoder import Batch

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy


#: An environment's actions: a batch, a list of single ones, or one.
Actions: TypeAlias = Batch | float


def raw_actions(policy: Policy, actions: Actions) -> Array:
    """Return the raw actions for an environment's actions; see `Policy.raw_action`."""
    codec = policy.action_codec
    batch = _to_batch(codec.info, actions)
    for leaf, actions_of_leaf in codec.leaf_actions(batch):
        part = _plugin_part(policy, leaf.info)
        if part is not None:
            _check_inverse(leaf, actions_of_leaf, part)
    return codec.invert(batch)


# --- forms of raw actions -------------------------------------------------------------------------


def _to_batch(info: SpaceInfo, actions: Actions) -> Any:
    """Return one action, a list of actions or a batch as a batch, in the form that a vector
    environment accepts.
    """
    if isinstance(actions, list) and _lists_single_actions(info, actions):
        try:
            return stack(info, actions)
        except (ValueError, KeyError, TypeError) as error:
            raise ActionError(
                f"actions: {info.path}: this list has actions outside {info.describe()}: {error}"
            ) from error
    arrays = map_tensors(actions, _to_array)
    is_single = _is_single(info, arrays)
    if is_single is None:  # no shape says so, as with a text
        # A OneOf contains pairs with an integer, and no pairs with an array of one integer.
        is_single = info.space.contains(actions) or info.space.contains(arrays)
    if is_single:
        try:
            return stack(info, [arrays])
        except (ValueError, KeyError, TypeError):
            return arrays  # the codec will raise an error that says more
    return arrays


def _lists_single_actions(info: SpaceInfo, actions: list[Any]) -> bool:
    """Return whether a list is one of single actions for certain.

    A list of numbers may be a batch as well; its axes tell.
    """
    if not actions:
        return True
    return info.is_composite and all(isinstance(action, tuple | Mapping) for action in actions)


def _is_single(info: SpaceInfo, actions: Any) -> bool | None:
    """Return whether this is one action, judging by the axes of the first entry with a shape; None
    if none has one.
    """
    if info.is_composite:
        for child, actions_of_child in _children(info, actions):
            is_single = _is_single(child, actions_of_child)
            if is_single is not None:
                return is_single
        return None
    if info.shape is None:
        return None
    try:
        return np.ndim(actions) == len(info.shape)
    except ValueError:  # lists of different lengths, which the codec will report
        return False


def _children(info: SpaceInfo, actions: Any) -> list[tuple[SpaceInfo, Any]]:
    """Return the entries that exist; the codec reports missing ones."""
    if not info.keys:
        if isinstance(actions, tuple | list):
            # Not strict, because the codec reports a wrong length.
            return list(zip(info.children, actions, strict=False))
        return []
    if not isinstance(actions, Mapping):
        return []
    children = zip(info.keys, info.children, strict=True)
    return [(child, actions[key]) for key, child in children if key in actions]


def _to_array(values: Tensor) -> Array:
    """Return an array or tensor as an array."""
    if isinstance(values, np.ndarray):
        return values
    array: Array | None = ops_of(values).array(values)
    if array is None:
        raise ActionError(
            f"actions: expected values, found a tensor from a trace, {shown(values)}."
        )
    return array


# --- codecs of plugins ----------------------------------------------------------------------------


def _plugin_part(policy: Policy, info: SpaceInfo) -> Part | None:
    """Return the plugin's part for a leaf's actions; None if the kernel handles them."""
    parts_by_kind = {}
    for part in policy.catalog.parts("action_codec"):
        for kind in part.declaration.kinds:
            parts_by_kind[kind] = part
    # The nearest class comes first. A part names a class, or the kind of a class.
    for name in (*info.classes, info.kind):
        kind_of_class = KINDS.get(name, "")
        part_of_class = parts_by_kind.get(name) or parts_by_kind.get(kind_of_class)
        if part_of_class is not None:
            return part_of_class
    return None


#: How to get raw actions without an inverse, for messages.
_WAY_OUT = "store step.raw_action from Policy.act"


def _check_inverse(codec: ActionCodec, actions: Any, part: Part) -> None:
    """Raise an error unless a plugin's codec returns raw actions that it converts back to the same
    actions.

    Raises:
        ActionError: The actions are not in the space.
        NotServedError: The codec has no inverse.
        PartError: The codec's inverse is wrong, or raised an unexpected error.
    """
    codec_class = type(codec).__name__
    raw = _invert(codec, actions, part)
    # The plugin's method may return anything.
    shape = getattr(raw, "shape", None)
    expected_shape = (len(actions), codec.width)
    if shape != expected_shape:
        returned = raw if shape is None else shape
        raise part.fault(
            f"{codec_class}.invert() must return an array of shape {expected_shape} for"
            f" {len(actions)} actions of {codec.info.describe()}; found"
            f" {shown(returned, length=80)}."
        )
    # Converting the raw actions back must give the actions again.
    with blame_part(part, f"{codec_class}.adapt()"):
        actions_again = list(rows(codec.info, codec.adapt(raw)))
    pairs = zip(rows(codec.info, actions), actions_again, strict=True)
    for row, (action, action_again) in enumerate(pairs):
        if _is_close(action, action_again):
            continue
        if not codec.info.space.contains(action):
            raise ActionError(
                f"actions: {codec.info.path}: expected actions of {codec.info.describe()}; found"
                f" {shown(action, length=120)} in row {row}."
            )
        # A codec that overrides adapt() and inherits invert() has the inverse of another adapt().
        if _mro_index_of(codec, "adapt") < _mro_index_of(codec, "invert"):
            raise NotServedError(
                f"{codec.info.path}: {_describe_codec(codec, part)} has no inverse: it defines"
                f" adapt() but not invert(); {_WAY_OUT}."
            )
        raise part.fault(
            f"{codec_class}.invert() of {shown(action, length=120)} gives"
            f" {shown(raw[row].tolist(), length=120)}, which adapt() turns into"
            f" {shown(action_again, length=120)}; {_WAY_OUT}."
        )


def _invert(codec: ActionCodec, actions: Any, part: Part) -> Any:
    """Call a plugin's `invert`; raise an error if the codec has none."""
    with blame_part(part, f"{type(codec).__name__}.invert()"):
        try:
            return codec.invert(actions)
        except NotImplementedError as error:
            advice = f"; {_WAY_OUT}."
            if isinstance(error, NotServedError):  # the codec gives its own reason
                advice = f": {error} So {_WAY_OUT}."
            raise NotServedError(
                f"{codec.info.path}: {_describe_codec(codec, part)} has no inverse{advice}"
            ) from error


def _describe_codec(codec: ActionCodec, part: Part) -> str:
    return f"{type(codec).__name__} of {part.provider} (action_codec {part.name!r})"


def _mro_index_of(codec: ActionCodec, method: str) -> int:
    """Return the MRO index of the class that defines a method; 0 is the codec's own class."""
    return next(i for i, cls in enumerate(type(codec).__mro__) if method in vars(cls))


def _is_close(one: Any, other: Any) -> bool:
    """Return whether two values of a space are equal up to rounding."""
    if isinstance(one, Mapping):
        if not isinstance(other, Mapping) or one.keys() != other.keys():
            return False
        return all(_is_close(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list) and not isinstance(other, np.ndarray):
        if not isinstance(other, tuple | list) or len(one) != len(other):
            return False
        return all(map(_is_close, one, other))
    try:
        if np.shape(one) != np.shape(other):
            return False
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))
    except (TypeError, ValueError):  # not numbers
        return bool(np.array_equal(one, other))
