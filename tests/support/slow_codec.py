"""A slow reference of the codecs: reads the Gymnasium space itself, one value at a time, without
any code of theirs.

`encoded` says what the flat vector of an observation is, `seen` what a model finds in its place,
`unpadded` what `RepeatedValues.unbatch_all` makes of that.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.spaces import OneOfValues, Repeated, RepeatedValues, Simplex
from rlcatalog_preprocessors import GraphValues, TextValues

PRINTABLE = [chr(code) for code in range(32, 127)]
#: In place of an observation: a place that holds none, all zeros.
PADDING = object()
#: In place of an observation: a branch not taken, where any values may stand.
HIDDEN = object()

Options = dict[str, Any]


def _limit(options: Options, key: str, path: str) -> Any:
    found = options.get(key)
    return found.get(path) if isinstance(found, dict) else found


def _as_integers(options: Options) -> bool:
    return bool(options.get("_disable_preprocessor_api"))


def _is_text(space: Any) -> bool:
    return space.dtype is not None and np.dtype(space.dtype).kind == "U"


def _text(space: Any, options: Options, path: str) -> tuple[list[str], int, bool]:
    """Return the characters in order, the number of places, and whether characters are integers."""
    limit, integers = (
        _limit(options, "text_max_length", path),
        options.get("text_encoding") == "index",
    )
    if isinstance(space, spaces.Text):
        characters, most = (
            sorted(set(space.character_list)),
            min(space.max_length, limit or space.max_length),
        )
    else:
        characters, most = sorted(set(options.get("text_charset") or PRINTABLE)), limit
    return characters, most, integers or _as_integers(options)


def _list(space: Any, options: Options, path: str) -> tuple[Any, int]:
    """Return the space of the items and the number of places."""
    if isinstance(space, Repeated):
        return space.child_space, space.max_len
    return space.feature_space, _limit(options, "sequence_max_len", path)


def _items(space: Any, obs: Any) -> list[Any]:
    if isinstance(space, Repeated) or not space.stack:
        return list(obs)
    count = _count(space.feature_space, obs)
    return [_row(space.feature_space, obs, i) for i in range(count)]


def _count(space: Any, batch: Any) -> int:
    if isinstance(space, spaces.Dict):
        return _count(next(iter(space.spaces.values())), batch[next(iter(space.spaces))])
    return _count(space.spaces[0], batch[0]) if isinstance(space, spaces.Tuple) else len(batch)


def _row(space: Any, batch: Any, i: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _row(child, batch[key], i) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(
            _row(child, column, i) for child, column in zip(space.spaces, batch, strict=True)
        )
    return batch[i]


def _onehot(place: int, count: int) -> list[float]:
    return [1.0 if i == place else 0.0 for i in range(count)]


def _padded(values: list[float], size: int) -> list[float]:
    assert len(values) <= size
    return values + [0.0] * (size - len(values))


# --- the flat vector ------------------------------------------------------------------------------


def size(space: Any, options: Options, path: str = "obs") -> int:
    """Return the number of values of an encoding."""
    if isinstance(space, spaces.Dict):
        return sum(size(child, options, f"{path}[{key!r}]") for key, child in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return sum(size(child, options, f"{path}[{i}]") for i, child in enumerate(space.spaces))
    if isinstance(space, spaces.OneOf):
        branches = [size(child, options, f"{path}[{i}]") for i, child in enumerate(space.spaces)]
        return len(branches) + max(branches)
    if isinstance(space, Repeated | spaces.Sequence):
        child, places = _list(space, options, path)
        return 1 + places * size(child, options, f"{path}[:]")
    if isinstance(space, spaces.Graph):
        nodes = _limit(options, "graph_max_nodes", path)
        total = nodes * (size(space.node_space, options, f"{path}.nodes[:]") + 1)
        if space.edge_space is not None:
            edges = _limit(options, "graph_max_edges", path)
            total += edges * (size(space.edge_space, options, f"{path}.edges[:]") + 3)
        return total
    if _is_text(space):
        characters, most, integers = _text(space, options, path)
        return most * (2 if integers else len(characters) + 1)
    if isinstance(space, spaces.Discrete):
        return 1 if _as_integers(options) else int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.size if _as_integers(options) else int(space.nvec.sum())
    return int(np.prod(space.shape))


def encoded(space: Any, obs: Any, options: Options, path: str = "obs") -> list[float]:
    """Return the flat encoding of one observation."""
    if isinstance(space, spaces.Dict):
        parts = [
            encoded(child, obs[key], options, f"{path}[{key!r}]")
            for key, child in space.spaces.items()
        ]
        return [value for part in parts for value in part]
    if isinstance(space, spaces.Tuple):
        parts = [
            encoded(child, obs[i], options, f"{path}[{i}]") for i, child in enumerate(space.spaces)
        ]
        return [value for part in parts for value in part]
    if isinstance(space, spaces.OneOf):
        tag, count = int(obs[0]), len(space.spaces)
        branch = encoded(space.spaces[tag], obs[1], options, f"{path}[{tag}]")
        return _onehot(tag, count) + _padded(branch, size(space, options, path) - count)
    if isinstance(space, Repeated | spaces.Sequence):
        child, _ = _list(space, options, path)
        items = _items(space, obs)
        values = [float(len(items))]
        for item in items:
            values += encoded(child, item, options, f"{path}[:]")
        return _padded(values, size(space, options, path))
    if isinstance(space, spaces.Graph):
        return _encoded_graph(space, obs, options, path)
    if _is_text(space):
        characters, most, integers = _text(space, options, path)
        places = [characters.index(character) for character in obs]
        if integers:
            values = [place + 1.0 for place in places]
        else:
            values = [value for place in places for value in _onehot(place, len(characters))]
        width = 1 if integers else len(characters)
        return _padded(values, most * width) + _padded([1.0] * len(obs), most)
    return _encoded_leaf(space, obs, options)


def _encoded_leaf(space: Any, obs: Any, options: Options) -> list[float]:
    integers = _as_integers(options)
    if isinstance(space, spaces.Discrete):
        return [float(obs)] if integers else _onehot(int(obs) - int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        if integers:
            return [float(value) for value in obs.flat]
        entries = zip(obs.flat, space.start.flat, space.nvec.flat, strict=True)
        return [
            bit for value, start, n in entries for bit in _onehot(int(value) - int(start), int(n))
        ]
    assert isinstance(space, spaces.Box | spaces.MultiBinary | Simplex), space
    return [float(np.float32(value)) for value in np.asarray(obs).flat]


def _encoded_graph(space: Any, obs: Any, options: Options, path: str) -> list[float]:
    most = _limit(options, "graph_max_nodes", path)
    width = size(space.node_space, options, f"{path}.nodes[:]")
    nodes = [
        value for node in obs.nodes for value in _encoded_leaf(space.node_space, node, options)
    ]
    values = _padded(nodes, most * width) + _padded([1.0] * len(obs.nodes), most)
    if space.edge_space is None:
        return values
    most = _limit(options, "graph_max_edges", path)
    width = size(space.edge_space, options, f"{path}.edges[:]")
    given, links = ([], []) if obs.edges is None else (obs.edges, obs.edge_links)
    edges = [value for edge in given for value in _encoded_leaf(space.edge_space, edge, options)]
    ends = [float(end) for link in links for end in link]
    return (
        values
        + _padded(edges, most * width)
        + _padded(ends, most * 2)
        + _padded([1.0] * len(given), most)
    )


# --- what a model sees ----------------------------------------------------------------------------


def _array(values: Any, shape: tuple[int, ...], integers: bool = False) -> Any:
    """Return values (or PADDING, HIDDEN) as an array; what is hidden is masked."""
    dtype = np.int64 if integers else np.float32
    if values is PADDING or values is HIDDEN:
        zeros = np.zeros(shape, dtype)
        return np.ma.masked_all(shape, dtype) if values is HIDDEN else zeros
    return np.array(values, np.float32).astype(dtype).reshape(shape)


def seen(space: Any, obs: Any, options: Options, path: str = "obs") -> Any:
    """Return what a model sees of one observation, without the batch axis.

    Args:
        space: The space.
        obs: The observation, or PADDING or HIDDEN.
        options: The model config.
        path: Path of the space.
    """
    absent = obs is PADDING or obs is HIDDEN
    if isinstance(space, spaces.Dict):
        return {
            key: seen(child, obs if absent else obs[key], options, f"{path}[{key!r}]")
            for key, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        found = enumerate(space.spaces)
        return tuple(
            seen(child, obs if absent else obs[i], options, f"{path}[{i}]") for i, child in found
        )
    if isinstance(space, spaces.OneOf):
        count, tag = len(space.spaces), None if absent else int(obs[0])
        branches = tuple(
            seen(
                child, obs if absent else (obs[1] if i == tag else HIDDEN), options, f"{path}[{i}]"
            )
            for i, child in enumerate(space.spaces)
        )
        return OneOfValues(
            _array(obs if absent else _onehot(int(obs[0]), count), (count,)), branches
        )
    if isinstance(space, Repeated | spaces.Sequence):
        child, places = _list(space, options, path)
        items = [] if absent else _items(space, obs)
        filled = items + [obs if absent else PADDING] * (places - len(items))
        values = stacked([seen(child, item, options, f"{path}[:]") for item in filled])
        return RepeatedValues(values, _array(obs if absent else len(items), ()), places)
    if isinstance(space, spaces.Graph):
        return _seen_graph(space, obs, options, path)
    flat = obs if absent else encoded(space, obs, options, path)
    if _is_text(space):
        characters, most, integers = _text(space, options, path)
        width = 1 if integers else len(characters)
        values, mask = (obs, obs) if absent else (flat[: most * width], flat[most * width :])
        shape = (most,) if integers else (most, width)
        return TextValues(_array(values, shape, integers), _array(mask, (most,)))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        integers = _as_integers(options)
        return _array(flat, space.shape if integers else (size(space, options, path),), integers)
    return _array(flat, space.shape)


def _seen_graph(space: Any, obs: Any, options: Options, path: str) -> GraphValues:
    absent = obs is PADDING or obs is HIDDEN

    def part(child: Any, name: str) -> tuple[Any, Any]:
        most = _limit(options, f"graph_max_{name}", path)
        given = [] if absent or getattr(obs, name) is None else list(getattr(obs, name))
        items = given + [obs if absent else PADDING] * (most - len(given))
        values = stacked([seen(child, item, options, f"{path}.{name}[:]") for item in items])
        return values, _array(obs if absent else _padded([1.0] * len(given), most), (most,))

    nodes, node_mask = part(space.node_space, "nodes")
    if space.edge_space is None:
        return GraphValues(nodes, node_mask)
    edges, edge_mask = part(space.edge_space, "edges")
    most, links = _limit(options, "graph_max_edges", path), obs
    if not absent:
        links = _padded(
            [end for link in ([] if obs.edges is None else obs.edge_links) for end in link],
            most * 2,
        )
    return GraphValues(nodes, node_mask, edges, _array(links, (most, 2), integers=True), edge_mask)


def stacked(rows: list[Any]) -> Any:
    """Stack structures of arrays along a new first axis."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked(list(column)) for column in zip(*rows, strict=True))
    if is_dataclass(first):
        found = {name: [getattr(row, name) for row in rows] for name in vars(first)}
        return type(first)(
            **{
                k: v[0] if v[0] is None or isinstance(v[0], int) else stacked(v)
                for k, v in found.items()
            }
        )
    return np.ma.stack(rows) if any(np.ma.isMaskedArray(row) for row in rows) else np.stack(rows)


def unpadded(space: Any, obs: Any, options: Options, path: str = "obs") -> Any:
    """Return what a model sees of one observation, with lists of items in place of padded ones."""
    if obs is HIDDEN:
        return HIDDEN
    if isinstance(space, Repeated | spaces.Sequence):
        child, _ = _list(space, options, path)
        return [unpadded(child, item, options, f"{path}[:]") for item in _items(space, obs)]
    if isinstance(space, spaces.Dict):
        return {
            k: unpadded(child, obs[k], options, f"{path}[{k!r}]")
            for k, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            unpadded(child, obs[i], options, f"{path}[{i}]") for i, child in enumerate(space.spaces)
        )
    if isinstance(space, spaces.OneOf):
        branches = [
            unpadded(child, obs[1] if i == obs[0] else HIDDEN, options, f"{path}[{i}]")
            for i, child in enumerate(space.spaces)
        ]
        return OneOfValues(
            np.array(_onehot(int(obs[0]), len(branches)), np.float32), tuple(branches)
        )
    return seen(space, obs, options, path)


def assert_seen(found: Any, expected: Any) -> None:
    """Compare structures of arrays or tensors: containers, keys, shapes, dtypes, and values that
    are not hidden.
    """
    if expected is HIDDEN:
        return
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for key in expected:
            assert_seen(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_seen(one, other)
    elif is_dataclass(expected):
        assert type(found) is type(expected)
        for name, value in vars(expected).items():
            assert_seen(getattr(found, name), value)
    elif expected is None or isinstance(expected, int):
        assert found == expected
    else:
        array = np.asarray(found)
        assert array.shape == expected.shape
        assert array.dtype == expected.dtype
        shown = ~np.ma.getmaskarray(expected)
        np.testing.assert_array_equal(array[shown], np.ma.getdata(expected)[shown])
