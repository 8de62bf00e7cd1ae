"""From the environment's actions to raw ones: for data that no policy of ours has recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.actions import ActionCodec
from rlcatalog.errors import ActionError, CatalogError, NotServedError, shown
from rlcatalog.frameworks import ops_of
from rlcatalog.internals import KINDS, blame_part, stack
from rlcatalog.observations import rows
from rlcatalog.plugins import Component
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy

Array = np.ndarray[Any, Any]


def raw_actions(policy: Policy, actions: Any) -> Array:
    """Return the raw actions behind the environment's; see `Policy.raw_action`."""
    codec = policy.action_codec
    batch = _batch(codec.info, actions)
    for leaf, part in codec.leaf_actions(batch):
        component = _component(policy, leaf.info)
        if component is not None:
            _try(leaf, part, component)
    return codec.invert(batch)


# --- the form they come in -------------------------------------------------------------------------------------------


def _batch(info: SpaceInfo, actions: Any) -> Any:
    """Return one action, a list of actions or a batch as a batch, in the form a vector environment takes."""
    is_list = isinstance(actions, list)
    if is_list and (not actions or (info.is_composite and all(isinstance(one, tuple | Mapping) for one in actions))):
        try:
            return stack(info, actions)
        except (ValueError, KeyError, TypeError) as error:
            raise ActionError(
                f"actions: {info.path}: this list has actions that are none of {info.describe()}: {error}"
            ) from error
    return _arrays(info, actions, _is_single(info, actions))


def _is_single(info: SpaceInfo, actions: Any) -> bool:
    """Whether this is one action, by the number of axes of its first part that has a shape."""
    for leaf, part in _leaves(info, actions):
        if leaf.shape is not None:
            try:
                return np.ndim(part) == len(leaf.shape)
            except ValueError:  # lists of different lengths; the codec will say so
                return False
    return bool(info.space.contains(actions))


def _leaves(info: SpaceInfo, actions: Any) -> Any:
    for child, part in _parts(info, actions) if info.is_composite else ():
        yield from _leaves(child, part)
    if not info.is_composite:
        yield info, actions


def _parts(info: SpaceInfo, actions: Any) -> list[tuple[SpaceInfo, Any]]:
    """Return the parts there are; the codec says which are missing."""
    if info.keys:
        given = actions if isinstance(actions, Mapping) else {}
        return [(child, given[key]) for key, child in zip(info.keys, info.children, strict=True) if key in given]
    return list(zip(info.children, actions, strict=False)) if isinstance(actions, tuple | list) else []


def _arrays(info: SpaceInfo, actions: Any, single: bool) -> Any:
    """Return actions with arrays in place of tensors, one action as a batch of one."""
    if info.is_composite:
        parts = [_arrays(child, part, single) for child, part in _parts(info, actions)]
        complete = len(parts) == len(info.children) == len(actions) if hasattr(actions, "__len__") else False
        return info.join(parts) if complete else actions
    if hasattr(actions, "shape") and not isinstance(actions, np.ndarray):
        tensor, actions = actions, ops_of(actions).array(actions)
        if actions is None:
            raise ActionError(f"actions: {info.path}: expected values, found a tensor of a trace, {shown(tensor)}.")
    if not single:
        return actions
    return actions[None] if isinstance(actions, np.ndarray) else [actions]


# --- codecs of plugins -----------------------------------------------------------------------------------------------


def _component(policy: Policy, info: SpaceInfo) -> Component | None:
    """Return the plugin's part that serves the actions of a leaf; None where the kernel's does."""
    by_kind = {kind: c for c in policy.catalog.components("action_codec") for kind in c.declaration.kinds}
    if not by_kind:
        return None
    known = (by_kind.get(name) or by_kind.get(KINDS.get(name, "")) for name in (*info.classes, info.kind))
    return next((component for component in known if component is not None), None)


def _try(codec: ActionCodec, part: Any, component: Component) -> None:
    """Raise unless a plugin's codec gives raw actions that become the same actions again.

    Raises:
        ActionError: The actions lie not in the space.
        NotServedError: The codec has no inverse.
        PartError: Its inverse is wrong, or raised an error of its own.
    """
    who = f"{type(codec).__name__} of {component.provider} (action_codec {component.name!r})"
    keep = "keep what Policy.act returned as step.raw_action, and store that"
    with blame_part(component, f"{type(codec).__name__}.invert()"):
        try:
            raw = codec.invert(part)
        except NotServedError as error:
            raise NotServedError(f"{codec.info.path}: {who} has no inverse: {error} So {keep}.") from error
        except NotImplementedError as error:
            if isinstance(error, CatalogError):
                raise
            raise NotServedError(f"{codec.info.path}: {who} has no inverse; {keep}.") from error
    if getattr(raw, "shape", None) != (len(part), codec.width):
        raise component.fault(
            f"{type(codec).__name__}.invert() must return an array of shape {(len(part), codec.width)} for"
            f" {len(part)} actions of {codec.info.describe()}; found {shown(getattr(raw, 'shape', raw), 80)}."
        )
    with blame_part(component, f"{type(codec).__name__}.adapt()"):
        again = list(rows(codec.info, codec.adapt(raw)))
    for row, (one, other) in enumerate(zip(rows(codec.info, part), again, strict=True)):
        if _same(one, other):
            continue
        if not codec.info.space.contains(one):
            raise ActionError(
                f"actions: {codec.info.path}: expected actions of {codec.info.describe()}; found {shown(one, 120)} in"
                f" row {row}."
            )
        if _defines(codec, "adapt") < _defines(codec, "invert"):
            raise NotServedError(
                f"{codec.info.path}: {who} has no inverse: it has an adapt() of its own and no invert(); {keep}."
            )
        raise component.fault(
            f"{type(codec).__name__}.invert() of {shown(one, 120)} gives {shown(raw[row].tolist(), 120)}, which adapt()"
            f" makes {shown(other, 120)} of; {keep}."
        )


def _defines(codec: ActionCodec, method: str) -> int:
    """Return the place of the class that defines a method, 0 for the codec's own."""
    return next(i for i, cls in enumerate(type(codec).__mro__) if method in vars(cls))


def _same(one: Any, other: Any) -> bool:
    """Whether two values of a space are the same, but for the last digits."""
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, tuple | list) and not isinstance(other, np.ndarray):
        return isinstance(other, tuple | list) and len(one) == len(other) and all(map(_same, one, other))
    try:
        return bool(np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-4, atol=1e-5))
    except (TypeError, ValueError):  # no numbers
        return bool(np.array_equal(one, other))
