"""Gymnasium spaces as plain JSON data and back, for saved policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcatalog.spaces.info import KINDS, SpaceInfo


def space_to_json(space: Any) -> Any:
    """Return a space as plain data; None for a kind that is a plugin's own, which the caller must keep."""
    info = SpaceInfo.read(space)
    nodes = list(info.walk())
    ends = [end for node in nodes if node.kind == "graph" for end in (node.space.node_space, node.space.edge_space)]
    nodes += [SpaceInfo.read(end) for end in ends if end is not None]
    if any(node.classes[0] not in _EXACT for node in nodes):
        return None
    return _to_json(info)


def space_from_json(data: Any) -> Any:
    """Rebuild a space from `space_to_json`.

    Raises:
        ValueError: The data is None (a plugin's own kind) or malformed.
    """
    if data is None:
        raise ValueError("it has a kind of a plugin's own; pass it to load(observation_space=…, action_space=…)")
    from gymnasium import spaces

    from rlcatalog.spaces.extra import Repeated, Simplex

    kind = data["kind"]
    if kind == "box":
        dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
        low, high = (_unpack(data[key], shape, dtype) for key in ("low", "high"))
        return spaces.Box(low, high, shape, dtype)
    if kind == "discrete":
        dtype = np.dtype(data["dtype"])
        return spaces.Discrete(data["n"], start=data["start"], dtype=dtype)
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(data["nvec"], np.dtype(data["dtype"]), start=data["start"])
    if kind == "multi_binary":
        return spaces.MultiBinary(data["n"])
    if kind == "text":
        return spaces.Text(data["max_length"], min_length=data["min_length"], charset=data["charset"])
    children = [space_from_json(child) for child in data.get("children", ())]
    if kind == "dict":
        return spaces.Dict(list(zip(data["keys"], children, strict=True)))
    if kind == "tuple":
        return spaces.Tuple(children)
    if kind == "oneof":
        return spaces.OneOf(children)
    if kind == "sequence":
        return spaces.Sequence(children[0], stack=data["stack"])
    if kind == "graph":
        return spaces.Graph(children[0], children[1] if len(children) > 1 else None)
    if kind == "repeated":
        return Repeated(children[0], data["n"])
    if kind == "simplex":
        return Simplex(data["shape"], data["concentration"], np.dtype(data["dtype"]))
    raise ValueError(f"unknown kind of space {kind!r}")


def _to_json(info: SpaceInfo) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": info.kind}
    space = info.space
    if info.children:
        data["children"] = [_to_json(child) for child in info.children]
    if info.kind == "box":
        low, high = _pack(space.low), _pack(space.high)
        data |= {"dtype": info.dtype, "shape": list(space.shape), "low": low, "high": high}
    elif info.kind == "discrete":
        data |= {"n": info.n, "start": info.start, "dtype": info.dtype}
    elif info.kind == "multi_discrete":
        data |= {"nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": info.dtype}
    elif info.kind == "multi_binary":
        data["n"] = space.n if isinstance(space.n, int) else list(space.n)
    elif info.kind == "text":
        charset = "".join(sorted(space.character_set))  # the order of a set differs between processes
        data |= {"max_length": space.max_length, "min_length": space.min_length, "charset": charset}
    elif info.kind == "dict":
        data["keys"] = list(info.keys)
    elif info.kind == "sequence":
        data["stack"] = bool(space.stack)
    elif info.kind == "graph":
        ends = (space.node_space, space.edge_space)
        data["children"] = [space_to_json(end) for end in ends if end is not None]
    elif info.kind == "repeated":
        data["n"] = info.n
    elif info.kind == "simplex":
        data |= {"shape": list(space.shape), "concentration": space.concentration.tolist(), "dtype": info.dtype}
    return data


#: Classes that are written down; a subclass may mean more than its base says.
_EXACT = frozenset(KINDS)


def _pack(bound: np.ndarray[Any, Any]) -> Any:
    """Return a bound as one text where all values are equal, else as nested lists; JSON has no infinity."""
    if bound.size and (bound == bound.flat[0]).all():
        return repr(bound.flat[0].item())
    return _texts(bound.tolist())


def _texts(values: Any) -> Any:
    return [_texts(value) for value in values] if isinstance(values, list) else repr(values)


def _unpack(packed: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values = np.asarray(_values(packed, dtype.kind), dtype)
    return np.broadcast_to(values.reshape(shape) if isinstance(packed, list) else values, shape).astype(dtype)


def _values(packed: Any, kind: str) -> Any:
    if isinstance(packed, list):
        return [_values(item, kind) for item in packed]
    return packed == "True" if kind == "b" else int(packed) if kind in "iu" else float(packed)
