"""Conversion of Gymnasium spaces to plain JSON data and back, for saved policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

import rlcatalog_policy
from rlcatalog.internals import KINDS, codec_of_class
from rlcatalog.spaces import Repeated, Simplex, SpaceInfo

#: Maximum total number of entries in the Boxes and Simplexes of a space built from data: a few
#: digits can specify the size of a huge array of bounds. Pass larger spaces to
#: `load(observation_space=…)`.
MOST_ENTRIES = 1 << 25


#: Returns the node to write in place of one whose class is not known, or None if there is none.
StandIn: TypeAlias = Callable[[SpaceInfo], SpaceInfo | None]


def space_to_json(space: Any, stand_in: StandIn = lambda info: None) -> Any:
    """Return a space as plain data; None if it contains a plugin's kind of space that no action
    codec can save.

    As in RLlib, `"space"` contains the kind, and `"original_space"` the space that it was created
    from.

    Args:
        space: The space.
        stand_in: What to write for a space of another class; by default nothing, because a subclass
            may have more content than its base.
    """
    return _node_to_json(SpaceInfo.read(space), stand_in)


def observation_space_to_json(policy: rlcatalog_policy.Policy) -> Any:
    """Return a policy's observation space as plain data.

    A space that a listed preprocessor encodes is written as a standard space that is encoded alike.
    """
    codecs = {codec.info.path: codec for codec in policy.preprocessor.codecs()}

    def stand_in(info: SpaceInfo) -> SpaceInfo | None:
        codec = codecs.get(info.path)
        if codec is None:  # an action mask, which is not encoded
            return of_known_kind(info)
        if codec.part is None or not codec.part.is_indexed:
            return None
        return codec.standard_space()

    return space_to_json(policy.observation_space, stand_in)


def action_space_to_json(policy: rlcatalog_policy.Policy) -> Any:
    """Return a policy's action space as plain data; subclasses that a listed codec serves are
    written as their base.
    """
    return space_to_json(policy.action_space, of_known_kind)


def of_known_kind(info: SpaceInfo) -> SpaceInfo | None:
    """Return the node if the nearest base of its class has a known kind, otherwise None."""
    return info if info.kind in _BUILDERS else None


def _node_to_json(info: SpaceInfo, stand_in: StandIn) -> Any:
    data = _to_json(info, stand_in)
    original = getattr(info.space, "original_space", None)
    if data is not None and isinstance(original, spaces.Space):
        written = space_to_json(original)
        return data if written is None else {**data, "original_space": written}
    return data


def space_from_json(data: Any) -> Any:
    """Rebuild a space from `space_to_json`.

    Raises:
        ValueError: The data is None (a plugin's kind), malformed or too large, or its kind is
            unknown here.
    """
    if data is None:
        raise ValueError(
            "its kind comes from a plugin; pass it to load(observation_space=…, action_space=…)"
        )
    if (entries := _entries(data)) > MOST_ENTRIES:
        raise ValueError(
            f"it has {entries} entries, but at most {MOST_ENTRIES} are read from a file; pass it to"
            " load(observation_space=…, action_space=…)"
        )
    return _from_json(data)


def same_space(one: Any, other: Any) -> bool:
    """Return whether two spaces, given as plain data, are the same; `"original_space"` is not
    compared.
    """
    return bool(_without_origin(one) == _without_origin(other))


def _without_origin(data: Any) -> Any:
    """Return a space's data without `"original_space"`."""
    if isinstance(data, list):
        return list(map(_without_origin, data))
    if not isinstance(data, dict):
        return data
    return {
        name: _without_origin(value) for name, value in data.items() if name != "original_space"
    }


def _from_json(data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(kind := data.get("space"), str):
        raise ValueError(f"expected a table with a kind of space, found {data!r}")
    children = data.get("children", ())
    if kind in _BUILDERS:
        if len(children) < _CHILDREN.get(kind, 0):
            raise ValueError(f"{kind} without its inner spaces")
        made = _BUILDERS[kind](data, [_from_json(child) for child in children])
    elif (codec := codec_of_class(kind)) is not None:
        made = codec.space_from_json(data)
    else:
        raise ValueError(
            f"unknown kind of space {kind!r}; the plugin that declares it is not loaded here"
        )
    if "original_space" in data:
        made.original_space = _from_json(data["original_space"])
    return made


def _entries(data: Any) -> int:
    """Return how many array entries a space needs, for its shapes and for a MultiBinary's `n`."""
    if not isinstance(data, dict):
        return 0
    shape = data.get("n") if data.get("space") == "multi_binary" else data.get("shape")
    sizes = shape if isinstance(shape, list) else [shape]
    own = (
        math.prod(sizes)
        if shape is not None and all(type(n) is int and n >= 0 for n in sizes)
        else 0
    )
    children = data.get("children")
    inside = list(children) if isinstance(children, list) else []
    return own + sum(map(_entries, [*inside, data.get("original_space")]))


def _to_json(info: SpaceInfo, stand_in: StandIn) -> dict[str, Any] | None:
    if info.classes[0] not in KINDS:
        if (codec := codec_of_class(info.classes[0])) is not None:
            own = codec.space_to_json(info.space)
            return None if own is None else {**own, "space": info.classes[0]}
        if (standard := stand_in(info)) is None:
            return None
        info = standard
    children = [_node_to_json(child, stand_in) for child in info.children]
    if info.kind == "graph":
        ends = (info.space.node_space, info.space.edge_space)
        children = [space_to_json(end, stand_in) for end in ends if end is not None]
    if any(child is None for child in children):
        return None
    data: dict[str, Any] = {"space": info.kind}
    if children:
        data["children"] = children
    write = _WRITERS.get(info.kind)
    return data if write is None else {**data, **write(info, info.space)}


#: Kind → the data of a space, in addition to its children.
_WRITERS: dict[str, Callable[[SpaceInfo, Any], dict[str, Any]]] = {
    "box": lambda info, space: {
        "dtype": info.dtype,
        "shape": list(space.shape),
        "low": _pack(space.low),
        "high": _pack(space.high),
    },
    "discrete": lambda info, space: {"n": info.n, "start": info.start, "dtype": info.dtype},
    "multi_discrete": lambda info, space: {
        "nvec": space.nvec.tolist(),
        "start": space.start.tolist(),
        "dtype": info.dtype,
    },
    "multi_binary": lambda info, space: {
        "n": space.n if isinstance(space.n, int) else list(space.n)
    },
    "text": lambda info, space: {
        "max_length": space.max_length,
        "min_length": space.min_length,
        # The order of a set differs between processes.
        "charset": "".join(sorted(space.character_set)),
    },
    "dict": lambda info, space: {"keys": list(info.keys)},
    "sequence": lambda info, space: {"stack": bool(space.stack)},
    "repeated": lambda info, space: {"n": info.n},
    "simplex": lambda info, space: {
        "shape": list(space.shape),
        "concentration": space.concentration.tolist(),
        "dtype": info.dtype,
    },
}


def _build_box(data: Any, children: list[Any]) -> Any:
    dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
    low, high = (_unpack(data[key], shape, dtype) for key in ("low", "high"))
    return spaces.Box(low, high, shape, dtype)


#: Kind → builder of a space from its data and its children.
_BUILDERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "box": _build_box,
    "discrete": lambda data, _: spaces.Discrete(
        data["n"], start=data["start"], dtype=np.dtype(data["dtype"])
    ),
    "multi_discrete": lambda data, _: spaces.MultiDiscrete(
        data["nvec"], np.dtype(data["dtype"]), start=data["start"]
    ),
    "multi_binary": lambda data, _: spaces.MultiBinary(data["n"]),
    "text": lambda data, _: spaces.Text(
        data["max_length"], min_length=data["min_length"], charset=data["charset"]
    ),
    "dict": lambda data, children: spaces.Dict(list(zip(data["keys"], children, strict=True))),
    "tuple": lambda data, children: spaces.Tuple(children),
    "oneof": lambda data, children: spaces.OneOf(children),
    "sequence": lambda data, children: spaces.Sequence(children[0], stack=data["stack"]),
    "graph": lambda data, children: spaces.Graph(
        children[0], children[1] if len(children) > 1 else None
    ),
    "repeated": lambda data, children: Repeated(children[0], data["n"]),
    "simplex": lambda data, _: Simplex(
        data["shape"], data["concentration"], np.dtype(data["dtype"])
    ),
}


#: Kinds with inner spaces → the minimum number of these.
_CHILDREN = {"sequence": 1, "graph": 1, "repeated": 1}


def _pack(bound: np.ndarray[Any, Any]) -> Any:
    """Return a bound as a single string if all values are equal, otherwise as nested lists; JSON
    has no infinity.
    """
    if bound.size and (bound == bound.flat[0]).all():
        return repr(bound.flat[0].item())
    return _texts(bound.tolist())


def _texts(values: Any) -> Any:
    return [_texts(value) for value in values] if isinstance(values, list) else repr(values)


def _unpack(packed: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values = np.asarray(_values(packed, dtype.kind), dtype)
    return np.broadcast_to(
        values.reshape(shape) if isinstance(packed, list) else values, shape
    ).astype(dtype)


def _values(packed: Any, kind: str) -> Any:
    if isinstance(packed, list):
        return [_values(item, kind) for item in packed]
    return packed == "True" if kind == "b" else int(packed) if kind in "iu" else float(packed)
