"""The parts of an observation: where each stands, how its tensor is read, how the features of all are joined.

Written once for both frameworks; what they spell differently comes as `Ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlcatalog.observations import Preprocessor
from rlcatalog.spaces import OneOfValues, RepeatedValues


class Ops(NamedTuple):
    """The operations of a framework that reading and joining need; N counts rows, M the places of a list.

    Attributes:
        rows: `rows(x, shape)` returns x as `[N, *shape]`.
        join: `join(tensors)` puts tensors `[N, ...]` side by side.
        floats: `floats(x)` returns x in the dtype of the weights.
        is_float: `is_float(x)` says whether x holds floating-point numbers.
        only: `only(taken, x)` returns x `[N, ...]` with zeros where `taken`, boolean `[N]`, is False.
        taken: `taken(lengths, M)` returns booleans `[N, M]`: which places lists of these lengths `[N]` take.
        mean: `mean(features, taken)` averages features `[N * M, F]` over the places taken, `[N, F]`; 0 over none.
        share: `share(taken)` returns the share of the places that is taken, `[N, 1]`.
        padded: `padded(x, width)` appends zeros to x `[N, n]`: `[N, width]`.
    """

    rows: Callable[[Any, tuple[int, ...]], Any]
    join: Callable[[list[Any]], Any]
    floats: Callable[[Any], Any]
    is_float: Callable[[Any], bool]
    only: Callable[[Any, Any], Any]
    taken: Callable[[Any, int], Any]
    mean: Callable[[Any, Any], Any]
    share: Callable[[Any], Any]
    padded: Callable[[Any, int], Any]


@dataclass(frozen=True, eq=False)
class ObservationPart:
    """A part of the observation with a net of its own.

    Attributes:
        index: Number of its net.
        path: Where it stands: `obs['camera']`; items of a list as `obs['units'][:]`.
        steps: Keys and positions that lead to it, from the observation or from the item of the list it is in.
        depth: In how many lists it stands, one in another.
        shape: Shape of the net's input, without axes for batch and places.
        hot: Number of its one-hot codec, for Discrete and MultiDiscrete; else None.
        integers: Shape of its integers, for those.
        columns: Its columns in the encoded observation, or item, when its net reads those: Text, Graph, OneOf.
        codec: Its preprocessor, for those.
    """

    index: int
    path: str
    steps: tuple[Any, ...]
    depth: int
    shape: tuple[int, ...]
    hot: int | None = None
    integers: tuple[int, ...] = ()
    columns: tuple[int, int] | None = None
    codec: Preprocessor | None = None


@dataclass(frozen=True, eq=False)
class Items:
    """A list of varying length: its items' parts are averaged, and its length is a feature.

    Attributes:
        index: Number of the list.
        path: Where it stands.
        steps: As in `ObservationPart`.
        max_len: Number of places.
        parts: Parts of an item; none for items without values.
        columns: The items' columns in what is around them, when a part among them is read from there; else None.
        item_size: Width of one encoded item.
    """

    index: int
    path: str
    steps: tuple[Any, ...]
    max_len: int
    parts: tuple[ObservationPart | Items, ...]
    columns: tuple[int, int] | None
    item_size: int


class Inputs:
    """What the nets of one batch read.

    Attributes:
        tensors: The input of each net, `[N, *shape]`, where N counts rows and, in lists, places.
        taken: For each list which places are taken, boolean `[N, M]`.
    """

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.taken: list[Any] = []


def read(
    parts: Sequence[ObservationPart | Items], obs: Any, flat: Any, ops: Ops, hots: Sequence[Callable[[Any], Any]]
) -> Inputs:
    """Find the input of every net.

    Args:
        parts: The parts of the observation.
        obs: Observations as models see them: a tensor, or a structure of tensors.
        flat: The same encoded, `[B, size]`; None where they came as structures.
        ops: The framework's operations.
        hots: The one-hot codecs.
    """
    found = Inputs()
    _read(parts, obs, flat, ops, hots, None, found)
    return found


def _read(
    parts: Sequence[ObservationPart | Items], obs: Any, flat: Any, ops: Ops, hots: Any, around: Any, found: Inputs
) -> None:
    for part in parts:
        x = obs
        for step in part.steps:
            x = x[step]
        if isinstance(part, Items):
            taken = ops.taken(ops.rows(x.lengths, ()), part.max_len)
            if around is not None:
                taken = taken & around[:, None]
            found.taken.append(taken)
            items = None
            if flat is not None and part.columns is not None:
                items = ops.rows(flat[:, slice(*part.columns)], (part.item_size,))
            _read(part.parts, x.values, items, ops, hots, ops.rows(taken, ()), found)
            continue
        if part.codec is not None:
            x = packed(x, part.codec, ops) if flat is None else flat[:, slice(*(part.columns or ()))]
        elif part.hot is not None and _are_integers(x, part, ops):
            x = hots[part.hot](ops.rows(x, part.integers))
        elif part.depth:
            x = ops.rows(x, part.shape)
        # What stands in empty places is no observation: not even a NaN there may reach a gradient.
        found.tensors.append(x if around is None else ops.only(around, x))


def _are_integers(x: Any, part: ObservationPart, ops: Ops) -> bool:
    """Whether a Discrete or MultiDiscrete came as integers rather than as one-hots."""
    shape, axes = x.shape, part.depth + 1
    if len(shape) - axes != len(part.integers):
        return False
    ends = tuple(shape[axes:])
    return ends == part.integers and (ends != part.shape or not ops.is_float(x))


def features(
    parts: Sequence[ObservationPart | Items], inputs: Inputs, nets: Sequence[Any], ops: Ops, is_training: Any = False
) -> Any:
    """Return the features of all parts side by side, `[N, F]`.

    Args:
        parts: The parts of the observation.
        inputs: What `read` returned.
        nets: A net for each part.
        ops: The framework's operations.
        is_training: Handed on to the nets.
    """
    found = []
    for part in parts:
        if isinstance(part, Items):
            taken = inputs.taken[part.index]
            if part.parts:
                found.append(ops.mean(features(part.parts, inputs, nets, ops, is_training), taken))
            found.append(ops.share(taken))
        else:
            found.append(nets[part.index]({"obs": inputs.tensors[part.index], "is_training": is_training})[0])
    return found[0] if len(found) == 1 else ops.join(found)


def width(parts: Sequence[ObservationPart | Items], nets: Sequence[Any]) -> int:
    """Return the width of the features of parts side by side; `nets` announce theirs."""
    return sum(
        1 + width(part.parts, nets) if isinstance(part, Items) else int(nets[part.index].num_outputs) for part in parts
    )


def nets_of(parts: Sequence[ObservationPart | Items]) -> Iterator[ObservationPart]:
    """Yield the parts that have a net, in the order of their numbers."""
    for part in parts:
        if isinstance(part, Items):
            yield from nets_of(part.parts)
        else:
            yield part


def packed(values: Any, codec: Preprocessor, ops: Ops) -> Any:
    """Encode what `codec.restore` made, `[N, size]`: for observations that come as structures.

    Args:
        values: A tensor, or a structure of tensors; axes before those of the codec count as rows.
        codec: The preprocessor, of a size that is not 0.
        ops: The framework's operations.
    """
    if not codec.structured:
        return ops.floats(ops.rows(values, (codec.size,)))
    if isinstance(values, Mapping):
        values = tuple(values[key] for key in codec.info.keys)
    if isinstance(values, tuple):
        pairs = zip(values, codec.children, strict=True)
        return ops.join([packed(value, child, ops) for value, child in pairs if child.size])
    if isinstance(values, RepeatedValues):
        (child,), lengths = codec.children, ops.floats(ops.rows(values.lengths, (1,)))
        if codec.size == 1:
            return lengths
        return ops.join([lengths, ops.rows(packed(values.values, child, ops), (codec.size - 1,))])
    if isinstance(values, OneOfValues):
        return _packed_branches(values, codec, ops)
    # Text and Graph: a leaf of the plan for each tensor, called `<path>.<name>`.
    leaves = [(leaf.path.rpartition(".")[2], leaf.stop - leaf.start) for leaf in codec.leaves()]
    return ops.join([ops.floats(ops.rows(getattr(values, name), (size,))) for name, size in leaves if size])


def _packed_branches(values: OneOfValues, codec: Preprocessor, ops: Ops) -> Any:
    """Encode a OneOf: in each row the values of the branch that its tag says."""
    count = len(codec.children)
    tag = ops.floats(ops.rows(values.tag, (count,)))
    found = ops.padded(tag, codec.size)
    for i, (branch, child) in enumerate(zip(values.branches, codec.children, strict=True)):
        if child.size:
            one = ops.only(tag[:, i] > 0.5, packed(branch, child, ops))
            # Behind the columns of the tag.
            found = found + ops.padded(ops.join([tag * 0.0, one]), codec.size)
    return found
