"""Actions as inputs of a model: the past ones that memories and views show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcatalog.actions.adapter import integer_span, is_integer_box, raw_width
from rlcatalog.spaces import SpaceInfo, one_hot

Array = np.ndarray[Any, Any]
_NO_KINDS: Mapping[str, str] = {}


def action_input_width(info: SpaceInfo) -> int:
    """Return the number of values of one action as input of a model: one-hots for choices, else one per number."""
    if info.kind == "discrete":
        return int(info.n or 0)
    if info.kind == "multi_discrete":
        assert info.nvec is not None
        return int(info.nvec.sum())
    if info.kind in ("tuple", "dict"):
        return sum(map(action_input_width, info.children))
    return raw_width(info)


class ActionForm:
    """Shows raw actions `[..., width]` to models, as values or as inputs.

    Args:
        info: The action space.
        kinds: Path → `ActionDistribution.raw_kind` of the leaves' distributions.
        flat: Whether actions of a Tuple or Dict stay one flat vector; else they are shown as the structure.

    Attributes:
        width: Number of raw values of one action.
        dtype: Dtype of the raw values: int64 where all are choices.
        input_width: Number of values as input of a model.
    """

    def __init__(self, info: SpaceInfo, kinds: Mapping[str, str] = _NO_KINDS, flat: bool = True) -> None:
        self.width, self.input_width = raw_width(info, kinds), action_input_width(info)
        leaves = [node for node in info.walk() if not node.children]
        whole = all(leaf.kind in _CHOICES and kinds.get(leaf.path) != "onehot" for leaf in leaves)
        self.dtype = np.dtype(np.int64 if whole else np.float32)
        self._encode = _encoder(info, kinds)
        self._show = _shower(info, kinds, flat)

    def inputs(self, raw: Array) -> Array:
        """Return raw actions `[B, width]` as inputs `[B, input_width]`, float32: a choice is a one-hot."""
        return self._encode(raw).astype(np.float32, copy=False)

    def shown(self, raw: Array) -> Any:
        """Return raw actions `[..., width]` in the space's shape: `[...]` for a Discrete, a structure if not flat."""
        return self._show(raw)


_CHOICES = ("discrete", "multi_discrete", "multi_binary")


def _encoder(info: SpaceInfo, kinds: Mapping[str, str]) -> Callable[[Array], Array]:
    if info.kind in ("tuple", "dict"):
        splits = np.cumsum([raw_width(child, kinds) for child in info.children])[:-1]
        encoders = [_encoder(child, kinds) for child in info.children]
        return lambda raw: np.concatenate(
            [encode(part) for encode, part in zip(encoders, np.split(raw, splits, axis=1), strict=True)], axis=1
        )
    if info.kind == "discrete" and kinds.get(info.path) != "onehot":
        n = int(info.n or 0)
        return lambda raw: one_hot(raw[:, 0], n)
    if info.kind == "multi_discrete":
        assert info.nvec is not None
        sizes = info.nvec.reshape(-1)
        starts = np.cumsum(sizes) - sizes
        total = int(sizes.sum())

        def one_hots(raw: Array) -> Array:
            out = np.zeros((len(raw), total), np.float32)
            np.put_along_axis(out, raw.astype(np.int64) + starts, 1.0, axis=1)
            return out

        return one_hots
    if is_integer_box(info):  # raw values count from 0
        spread = np.maximum(integer_span(info).astype(np.float64), 1.0).reshape(-1)
        return lambda raw: raw / spread
    return lambda raw: raw


def _shower(info: SpaceInfo, kinds: Mapping[str, str], flat: bool) -> Callable[[Array], Any]:
    if info.kind == "discrete" and kinds.get(info.path) != "onehot":
        return lambda raw: raw[..., 0].astype(np.int64, copy=False)
    if info.kind in ("tuple", "dict"):
        if flat:
            return lambda raw: raw
        splits = np.cumsum([raw_width(child, kinds) for child in info.children])[:-1]
        showers = [_shower(child, kinds, flat) for child in info.children]

        def structure(raw: Array) -> Any:
            parts = [show(part) for show, part in zip(showers, np.split(raw, splits, axis=-1), strict=True)]
            return dict(zip(info.keys, parts, strict=True)) if info.kind == "dict" else tuple(parts)

        return structure
    whole = info.kind in _CHOICES
    if kinds.get(info.path) == "onehot":
        return lambda raw: raw
    shape = info.shape or ()
    dtype = np.dtype(np.int64 if whole else np.float32)
    return lambda raw: raw.reshape(*raw.shape[:-1], *shape).astype(dtype, copy=False)
