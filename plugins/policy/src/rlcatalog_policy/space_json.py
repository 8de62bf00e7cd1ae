"""Conversion of Gymnasium spaces to plain JSON data and back, for saved policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcatalog.frameworks import Array
from rlcatalog.internals import KINDS, codec_of_class
from rlcatalog.spaces import Repeated, Simplex, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy

#: Maximum total number of entries in the Boxes and Simplexes of a space built from data: a few
#: digits can specify the size of a huge array of bounds. Pass larger spaces to
#: `load(observation_space=…)`.
MOST_ENTRIES = 1 << 25


#: A space as plain data: JSON values.
Data: TypeAlias = dict[str, Any]

#: Returns the node to write in place of one whose class is not known, or None if there is none.
StandIn: TypeAlias = Callable[[SpaceInfo], SpaceInfo | None]


def space_to_json(space: gymnasium.Space[Any], stand_in: StandIn | None = None) -> Data | None:
    """Return a space as plain data; None if it contains a plugin's kind of space that no action
    codec can save.

    As in RLlib, `"space"` contains the kind, and `"original_space"` the space that it was created
    from.

    Args:
        space: The space.
        stand_in: What to write for a space of another class; by default nothing, because a subclass
            may have more content than its base.
    """
    if stand_in is None:
        stand_in = _no_stand_in
    return _node_to_json(SpaceInfo.read(space), stand_in)


def observation_space_to_json(policy: Policy) -> Data | None:
    """Return a policy's observation space as plain data.

    A space that a listed preprocessor encodes is written as a standard space that is encoded alike.
    """
    codecs = {codec.info.path: codec for codec in policy.preprocessor.codecs()}

    def space_that_is_encoded_alike(info: SpaceInfo) -> SpaceInfo | None:
        codec = codecs.get(info.path)
        if codec is None:  # an action mask, which is not encoded
            return of_known_kind(info)
        # Only of a package in the public index is it known that `load` can have it everywhere.
        is_in_public_index = codec.part is not None and codec.part.is_indexed
        if not is_in_public_index:
            return None
        return codec.standard_space()

    return space_to_json(policy.observation_space, space_that_is_encoded_alike)


def action_space_to_json(policy: Policy) -> Data | None:
    """Return a policy's action space as plain data; subclasses that a listed codec serves are
    written as their base.
    """
    return space_to_json(policy.action_space, of_known_kind)


def of_known_kind(info: SpaceInfo) -> SpaceInfo | None:
    """Return the node if the nearest base of its class has a known kind, otherwise None."""
    if info.kind in _KINDS:
        return info
    return None


def _no_stand_in(info: SpaceInfo) -> None:
    """Return None: no space is written in place of another."""


def space_from_json(data: Data | None) -> Any:
    """Rebuild a space from `space_to_json`.

    Raises:
        ValueError: The data is None (a plugin's kind), malformed or too large, or its kind is
            unknown here.
    """
    if data is None:
        raise ValueError(
            "its kind comes from a plugin; pass it to load(observation_space=…, action_space=…)"
        )
    num_entries = _count_entries(data)
    if num_entries > MOST_ENTRIES:
        raise ValueError(
            f"it has {num_entries} entries, but at most {MOST_ENTRIES} are read from a file; pass"
            " it to load(observation_space=…, action_space=…)"
        )
    return _from_json(data)


def same_space(one: Data | None, other: Data | None) -> bool:
    """Return whether two spaces, given as plain data, are the same; `"original_space"` is not
    compared.
    """
    return bool(_without_original(one) == _without_original(other))


def _without_original(data: Any) -> Any:
    """Return a space's data without `"original_space"`, also in the spaces inside it."""
    if isinstance(data, list):
        return [_without_original(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        name: _without_original(value) for name, value in data.items() if name != "original_space"
    }


# --- writing --------------------------------------------------------------------------------------


def _node_to_json(info: SpaceInfo, stand_in: StandIn) -> Data | None:
    """Return a space as data, with the space that it was created from."""
    data = _to_json(info, stand_in)
    # RLlib's preprocessors note the original space in this attribute of Gymnasium's spaces.
    original = getattr(info.space, "original_space", None)
    if data is not None and isinstance(original, gymnasium.Space):
        original_data = space_to_json(original)
        if original_data is not None:
            data["original_space"] = original_data
    return data


def _to_json(info: SpaceInfo, stand_in: StandIn) -> Data | None:
    """Return a space as data, or None if it or a child of it cannot be written; see
    `space_to_json`.
    """
    class_name = info.classes[0]
    if class_name not in KINDS:  # not a class of Gymnasium or the kernel
        codec = codec_of_class(class_name)
        if codec is not None:
            data = codec.space_to_json(info.space)
            if data is None:
                return None
            return {**data, "space": class_name}
        standard = stand_in(info)
        if standard is None:
            return None
        info = standard

    children = []
    for child in _children_to_json(info, stand_in):
        if child is None:
            return None
        children.append(child)
    data = {"space": info.kind}
    if children:
        data["children"] = children
    if info.kind in _KINDS:
        data.update(_KINDS[info.kind].write(info, info.space))
    return data


def _children_to_json(info: SpaceInfo, stand_in: StandIn) -> list[Data | None]:
    if info.kind == "graph":
        # `SpaceInfo` has no children for a Graph's nodes and edges.
        ends = [info.space.node_space, info.space.edge_space]
        return [space_to_json(end, stand_in) for end in ends if end is not None]
    return [_node_to_json(child, stand_in) for child in info.children]


# --- reading --------------------------------------------------------------------------------------


def _from_json(data: Any) -> Any:
    """Return the space that `_node_to_json` wrote."""
    kind = data.get("space") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise ValueError(f"expected a table with a kind of space, found {data!r}")
    if kind in _KINDS:
        space = _from_json_of_kind(kind, data)
    else:
        codec = codec_of_class(kind)
        if codec is None:
            raise ValueError(
                f"unknown kind of space {kind!r}; the plugin that declares it is not loaded here"
            )
        space = codec.space_from_json(data)
    if "original_space" in data:
        space.original_space = _from_json(data["original_space"])
    return space


def _from_json_of_kind(kind: str, data: Data) -> Any:
    children = data.get("children", ())
    if len(children) < _KINDS[kind].min_children:
        raise ValueError(f"{kind} without its inner spaces")
    child_spaces = [_from_json(child) for child in children]
    return _KINDS[kind].build(data, child_spaces)


def _count_entries(data: Any) -> int:
    """Return how many array entries a space needs, for its shapes and for a MultiBinary's `n`."""
    if not isinstance(data, dict):
        return 0
    shape = data.get("shape")
    if data.get("space") == "multi_binary":
        shape = data.get("n")
    lengths: list[Any] = shape if isinstance(shape, list) else [shape]
    num_entries = 0
    if all(type(length) is int and length >= 0 for length in lengths):
        num_entries = math.prod(lengths)
    inner_spaces = [data.get("original_space")]
    children = data.get("children")
    if isinstance(children, list):
        inner_spaces += children
    return num_entries + sum(_count_entries(inner) for inner in inner_spaces)


# --- kinds of spaces ------------------------------------------------------------------------------


class _Kind:
    """How a kind of space is written as data, beside its children, and built again.

    Attributes:
        min_children: The least number of inner spaces.
    """

    min_children = 0

    def write(self, info: SpaceInfo, space: Any) -> Data:
        """Return the data of a space, in addition to its children."""
        return {}

    def build(self, data: Data, children: list[Any]) -> Any:
        """Build a space from its data and its children."""
        raise NotImplementedError


class _Box(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {
            "dtype": info.dtype,
            "shape": list(space.shape),
            "low": _pack(space.low),
            "high": _pack(space.high),
        }

    def build(self, data: Data, children: list[Any]) -> Any:
        dtype = np.dtype(data["dtype"])
        shape = tuple(data["shape"])
        low = _unpack(data["low"], shape, dtype)
        high = _unpack(data["high"], shape, dtype)
        return spaces.Box(low, high, shape, dtype)


class _Discrete(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {"n": info.n, "start": info.start, "dtype": info.dtype}

    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.Discrete(data["n"], start=data["start"], dtype=np.dtype(data["dtype"]))


class _MultiDiscrete(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": info.dtype,
        }

    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.MultiDiscrete(data["nvec"], np.dtype(data["dtype"]), start=data["start"])


class _MultiBinary(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        if isinstance(space.n, int):
            return {"n": space.n}
        return {"n": list(space.n)}

    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.MultiBinary(data["n"])


class _Text(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {
            "max_length": space.max_length,
            "min_length": space.min_length,
            # The order of a set differs between processes.
            "charset": "".join(sorted(space.character_set)),
        }

    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.Text(
            data["max_length"], min_length=data["min_length"], charset=data["charset"]
        )


class _Dict(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {"keys": list(info.keys)}

    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.Dict(list(zip(data["keys"], children, strict=True)))


class _Tuple(_Kind):
    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.Tuple(children)


class _OneOf(_Kind):
    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.OneOf(children)


class _Sequence(_Kind):
    min_children = 1

    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {"stack": bool(space.stack)}

    def build(self, data: Data, children: list[Any]) -> Any:
        return spaces.Sequence(children[0], stack=data["stack"])


class _Graph(_Kind):
    min_children = 1

    def build(self, data: Data, children: list[Any]) -> Any:
        has_edges = len(children) > 1
        edge_space = children[1] if has_edges else None
        return spaces.Graph(children[0], edge_space)


class _Repeated(_Kind):
    min_children = 1

    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {"n": info.n}

    def build(self, data: Data, children: list[Any]) -> Any:
        return Repeated(children[0], data["n"])


class _Simplex(_Kind):
    def write(self, info: SpaceInfo, space: Any) -> Data:
        return {
            "shape": list(space.shape),
            "concentration": space.concentration.tolist(),
            "dtype": info.dtype,
        }

    def build(self, data: Data, children: list[Any]) -> Any:
        dtype: Any = np.dtype(data["dtype"])
        return Simplex(data["shape"], data["concentration"], dtype)


_KINDS: dict[str, _Kind] = {
    "box": _Box(),
    "discrete": _Discrete(),
    "multi_discrete": _MultiDiscrete(),
    "multi_binary": _MultiBinary(),
    "text": _Text(),
    "dict": _Dict(),
    "tuple": _Tuple(),
    "oneof": _OneOf(),
    "sequence": _Sequence(),
    "graph": _Graph(),
    "repeated": _Repeated(),
    "simplex": _Simplex(),
}


# --- bounds of a Box ------------------------------------------------------------------------------

#: The bounds of a Box as data: texts, because JSON has no infinity; one text if all are equal.
PackedBound: TypeAlias = str | list[Any]


def _pack(bound: Array) -> PackedBound:
    """Return a bound as a single string if all values are equal, otherwise as nested lists."""
    if bound.size and (bound == bound.flat[0]).all():
        return repr(bound.flat[0].item())
    texts: list[Any] = _to_texts(bound.tolist())
    return texts


def _to_texts(values: Any) -> Any:
    if isinstance(values, list):
        return [_to_texts(value) for value in values]
    return repr(values)


def _unpack(packed: PackedBound, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    values = np.asarray(_to_numbers(packed, dtype.kind), dtype)
    if isinstance(packed, list):
        values = values.reshape(shape)
    return np.broadcast_to(values, shape).astype(dtype)


def _to_numbers(packed: PackedBound, kind: str) -> Any:
    """Return the numbers that texts stand for, in the form for a kind of dtype: `"b"`, `"i"`, …"""
    if isinstance(packed, list):
        return [_to_numbers(item, kind) for item in packed]
    if kind == "b":
        return packed == "True"
    if kind in "iu":
        return int(packed)
    return float(packed)
