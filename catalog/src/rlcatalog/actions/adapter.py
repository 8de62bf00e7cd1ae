"""Adapter, the last stage: from raw actions, as a distribution draws them, to actions of the environment's space.

The raw form is one flat array `[B, width]`. The adapter adds the offset of discrete values, brings Box values into
their bounds, casts and restores the structure, so that every adapted sample lies in the action space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from rlcatalog.errors import NotServedError, UnsupportedSpaceError
from rlcatalog.spaces import SpaceInfo

Array = np.ndarray[Any, Any]
_INT64_MAX = np.iinfo(np.int64).max


class ActionAdapter:
    """Maps raw actions `[B, width]` to a batch of environment actions.

    Args:
        info: The action space.
        bounds: How Box values meet their bounds: `"clip"`, or `"affine"`, which maps [-1, 1] onto [low, high] (and
            clips) in the dimensions that have two finite bounds.
        kinds: Path → `ActionDistribution.raw_kind` of the leaves' distributions; `"values"` where missing.

    Raises:
        UnsupportedSpaceError: A leaf has no flat form, or has more whole numbers than a float32 beside it can hold.

    Attributes:
        width: Number of raw values of one action.
        scalar: Whether the space is a single Discrete, whose raw actions distributions take as `[B]`.
    """

    def __init__(self, info: SpaceInfo, bounds: str = "clip", kinds: Mapping[str, str] | None = None) -> None:
        self.info, self.bounds, self.kinds = info, bounds, kinds or {}
        self.width = raw_width(info, self.kinds)
        _refuse_inexact(info, self.kinds)
        self.scalar = info.kind == "discrete" and self.kinds.get(info.path) != "onehot"
        #: Maps raw actions to the environment's: an array `[B, ...]`, or a structure of such for Tuple and Dict.
        self.adapt = _adapter(info, bounds, self.kinds)

    def __call__(self, raw: Array) -> Any:
        """Return `adapt(raw)`."""
        return self.adapt(raw)

    def invert(self, action: Any) -> Array:
        """Return the raw actions `[B, width]` behind a batch of environment actions.

        Raises:
            NotServedError: A part of the map cannot be inverted (clipping).
        """
        return np.asarray(_invert(self.info, action, self.bounds, self.kinds))


def raw_width(info: SpaceInfo, kinds: Mapping[str, str] = MappingProxyType({})) -> int:
    """Return the number of raw values of one action.

    Args:
        info: The action space.
        kinds: Path → `ActionDistribution.raw_kind` of the leaves' distributions.

    Raises:
        UnsupportedSpaceError: Actions of this kind have no flat form.
    """
    if info.kind == "discrete":
        return int(info.n or 0) if kinds.get(info.path) == "onehot" else 1
    if info.kind in ("tuple", "dict"):
        return sum(raw_width(child, kinds) for child in info.children)
    if info.shape is None:
        raise UnsupportedSpaceError(f"{info.path}: {info.describe()} cannot be an action space: it has no fixed size.")
    return int(np.prod(info.shape))


def action_shape(info: SpaceInfo) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
    """Return dtype and shape of a batch of raw actions, as `ModelCatalog.get_action_shape` does."""
    width = raw_width(info)
    if info.kind in ("tuple", "dict"):
        leaves = [node for node in info.walk() if node.kind not in ("tuple", "dict")]
        whole = all(leaf.kind == "discrete" for leaf in leaves)
        return np.dtype(np.int32 if whole else np.float32), (None, width)
    dtype = np.dtype(info.dtype or "float32")
    if info.kind in ("box", "simplex"):
        dtype = np.dtype(np.int32 if dtype.kind in "iu" else np.float32)
    return dtype, (None, *(info.shape or ()))


def _adapter(info: SpaceInfo, bounds: str, kinds: Mapping[str, str]) -> Callable[[Array], Any]:
    if info.kind == "discrete":
        start, dtype = info.start, np.dtype(info.dtype or "int64")
        if kinds.get(info.path) == "onehot":
            return lambda raw: raw.argmax(axis=1).astype(dtype) + dtype.type(start)
        if start == 0 and dtype == np.int64:  # what distributions draw
            return lambda raw: raw[:, 0].copy() if raw.dtype is dtype else raw[:, 0].astype(dtype)
        return lambda raw: raw[:, 0].astype(dtype) + dtype.type(start)
    if info.kind in ("tuple", "dict"):
        splits = np.cumsum([raw_width(child, kinds) for child in info.children])[:-1]
        children = [_adapter(child, bounds, kinds) for child in info.children]

        def structure(raw: Array) -> Any:
            parts = np.split(raw, splits, axis=1)
            adapted = tuple(adapt(part) for adapt, part in zip(children, parts, strict=True))
            return dict(zip(info.keys, adapted, strict=True)) if info.kind == "dict" else adapted

        return structure
    shape, dtype = info.shape or (), np.dtype(info.dtype or "float32")
    if info.kind == "multi_discrete":
        assert info.nvec is not None
        return _counted(np.asarray(info.start, dtype), info.nvec.astype(np.uint64) - np.uint64(1))
    if is_integer_box(info):
        return _counted(np.asarray(info.low), integer_span(info))
    if info.kind == "box":
        return _box(info, "clip" if kinds.get(info.path) == "bounded" else bounds, shape, dtype)
    return lambda raw: raw.reshape(len(raw), *shape).astype(dtype)


def _refuse_inexact(info: SpaceInfo, kinds: Mapping[str, str]) -> None:
    """Raise where a leaf has more whole numbers than float32 can hold, as which they are stored beside floats."""
    counts = {leaf.path: _count(leaf, kinds) for leaf in info.walk() if not leaf.children}
    path = max(counts, key=counts.__getitem__, default="")
    if path and counts[path] > _FLOAT32_COUNT and not all(counts.values()):
        raise UnsupportedSpaceError(
            f"{path}: {counts[path]:,} values cannot be told apart beside floats, where float32 holds"
            f" {_FLOAT32_COUNT:,}; narrow its bounds, or leave the floats out of the action space."
        )


def _count(leaf: SpaceInfo, kinds: Mapping[str, str]) -> int:
    """Return how many values a leaf's raw numbers count, 0 where they are floats."""
    if leaf.kind == "discrete":
        return 0 if kinds.get(leaf.path) == "onehot" else int(leaf.n or 0)
    if leaf.kind == "multi_discrete":
        assert leaf.nvec is not None
        return int(leaf.nvec.max(initial=1))
    if is_integer_box(leaf):
        return int(integer_span(leaf).max(initial=0)) + 1
    return 2 if leaf.kind == "multi_binary" else 0


#: Whole numbers from 0 up that float32 holds without a gap.
_FLOAT32_COUNT = 2**24 + 1


def is_integer_box(info: SpaceInfo) -> bool:
    """Whether a space is a Box of integers or bools, whose raw values count from 0."""
    return info.kind == "box" and np.dtype(info.dtype or "float32").kind in "iub"


def integer_span(info: SpaceInfo) -> Array:
    """Return the highest raw values of a Box of integers: its bounds' distances, uint64, which always holds them."""
    assert info.low is not None
    assert info.high is not None
    span: Array = info.high.astype(np.uint64) - info.low.astype(np.uint64)  # modulo 2^64, as all that follows
    return span


def _counted(low: Array, span: Array) -> Callable[[Array], Array]:
    """Return the map from raw values that count from 0 to `low` and above, exact for every integer dtype."""
    first, dtype, shape = low.astype(np.uint64), low.dtype, low.shape

    def adapt(raw: Array) -> Array:
        return (first + np.minimum(_counts(raw.reshape(len(raw), *shape)), span)).astype(dtype)

    return adapt


def _counts(raw: Array) -> Array:
    """Return raw values as whole numbers from 0, uint64; floats, as they are stored beside floats, are rounded."""
    if raw.dtype.kind == "f":
        raw = np.minimum(np.rint(raw.astype(np.float64)), _BELOW_2_64)
    return raw.astype(np.uint64) if raw.dtype.kind in "ub" else np.maximum(raw, 0).astype(np.uint64)


#: The highest float64 that is a uint64.
_BELOW_2_64 = np.nextafter(2.0**64, 0)


def _box(info: SpaceInfo, bounds: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[Array], Any]:
    assert info.low is not None
    assert info.high is not None
    low, high = info.low, info.high
    scale, middle = _affine(info) if bounds == "affine" else (None, None)
    # Without bounds, what the dtype can hold bounds the value; it is cut before it is cast.
    low, high = np.maximum(low, np.finfo(dtype).min), np.minimum(high, np.finfo(dtype).max)

    def adapt(raw: Array) -> Array:
        value = raw.reshape(len(raw), *shape)
        if scale is not None:
            value = value * scale + middle
        return np.minimum(np.maximum(value, low), high).astype(dtype, copy=False)  # type: ignore[no-any-return]

    return adapt


def _affine(info: SpaceInfo) -> tuple[Array, Array]:
    assert info.low is not None
    assert info.high is not None
    finite = np.isfinite(info.low) & np.isfinite(info.high)
    low, high = (np.where(finite, bound, bare).astype(np.float64) for bound, bare in ((info.low, -1), (info.high, 1)))
    return high / 2 - low / 2, high / 2 + low / 2


def _invert(info: SpaceInfo, action: Any, bounds: str, kinds: Mapping[str, str]) -> Any:
    if info.kind in ("tuple", "dict"):
        parts = [action[key] for key in info.keys] if info.kind == "dict" else action
        return np.concatenate(
            [_invert(child, part, bounds, kinds) for child, part in zip(info.children, parts, strict=True)], axis=1
        )
    if is_integer_box(info):
        assert info.low is not None
        action = np.asarray(action, info.low.dtype)  # a list of large numbers would become floats
        flat = action.reshape(len(action), info.low.size).astype(np.uint64) - info.low.reshape(-1).astype(np.uint64)
        return flat if integer_span(info).max(initial=0) > _INT64_MAX else flat.astype(np.int64)
    action = np.asarray(action)
    flat = (len(action), math.prod(info.shape or ()))
    if kinds.get(info.path) == "onehot":
        return np.eye(int(info.n or 0), dtype=np.float32)[(action - info.start).reshape(-1)]
    if info.kind in ("discrete", "multi_discrete"):
        return (action - info.start).reshape(flat)
    if info.kind != "box" or kinds.get(info.path) == "bounded":
        return action.reshape(flat)
    if bounds != "affine":
        raise NotServedError(f"{info.path}: clipping has no inverse; the raw action must be kept when it is drawn.")
    scale, middle = _affine(info)
    return ((action - middle) / scale).reshape(flat).astype(np.float32)
