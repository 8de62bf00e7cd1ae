"""How the parts of a Tuple or Dict lie in flat tensors: of model outputs, of raw actions and of masks.

The leaves of a space, depth first and in the space's order, stand side by side in each of the three.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcatalog import SpaceInfo, TupleActions
from rlcatalog.adapters import raw_width
from rlcatalog.distribution import ActionDistribution, BoundDistribution
from rlcatalog.errors import ModelContractError, UnsupportedSpaceError
from rlcatalog.masks import groups
from rlcatalog_multi_action.fusing import Group, grouped

#: Kinds whose raw actions are whole numbers.
_WHOLE = ("discrete", "multi_discrete", "multi_binary")
#: Gives each input with a forbidden column its dtype's lowest value.
_FILLS = ActionDistribution.masked.__func__  # type: ignore[attr-defined]

#: Dicts and the values they were made with.
Dicts = list[tuple[dict[str, Any], list[Any]]]


@dataclass(frozen=True, eq=False)
class Leaf:
    """One part that has a distribution of its own.

    Attributes:
        path: Where it stands, such as `action['arm'][0]`.
        kind: `SpaceInfo.kind`.
        dist: Makes the distribution: called with `(inputs, model)`. None in a layout of actions alone.
        size: Number of its model outputs.
        width: Number of raw values of one action.
        mask_width: Number of its mask columns.
        whole: Whether raw actions are whole numbers.
        single: Whether raw actions are `[B]`, those of a single Discrete.
        inner: The layout of the structure that its distribution draws, where that is one of its own.
    """

    path: str
    kind: str
    dist: Any
    size: int
    width: int
    mask_width: int
    whole: bool
    single: bool
    inner: Layout | None = None


@dataclass(frozen=True, eq=False)
class Node:
    """A Tuple (`keys` is None) or Dict of the space; a child that is None is the next leaf."""

    path: str
    keys: tuple[str, ...] | None
    children: tuple[Node | None, ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """The leaves of a composite space and the structure they form.

    Attributes:
        root: The structure.
        leaves: Its leaves, depth first.
        counts: Number of leaves of each of the root's children.
        groups: The distributions that the leaves are joined into.
        sizes: The leaves' numbers of model outputs.
        widths: The leaves' numbers of raw values.
        mask_widths: The leaves' numbers of mask columns.
        mask_columns: For each model output the column of masks that it goes by, `mask_width` where there is none. None
            as a whole where a leaf bakes masks in its own way.
        some_whole: Whether some leaf's raw actions are whole numbers.
        several_masked: Whether more than one of the groups may have forbidden values.
        grow: Makes the structure out of the leaves' values.
        cuts: For each group the place of its one leaf, or for each leaf its place, first column and number of columns
            (-1: one column, as `[B]`).
        makers: Make the groups' distributions out of all inputs; filled in by the framework at its first use.
        inexact: Places of the groups whose entropy has no closed form; filled in with the makers.
    """

    root: Node
    leaves: tuple[Leaf, ...]
    counts: tuple[int, ...]
    groups: tuple[Group, ...] = field(init=False)
    sizes: tuple[int, ...] = field(init=False)
    widths: tuple[int, ...] = field(init=False)
    mask_widths: tuple[int, ...] = field(init=False)
    size: int = field(init=False)
    width: int = field(init=False)
    mask_width: int = field(init=False)
    mask_columns: tuple[int, ...] | None = field(init=False)
    some_whole: bool = field(init=False)
    several_masked: bool = field(init=False)
    grow: Callable[[Sequence[Any], Dicts], Any] = field(init=False)
    cuts: tuple[int | tuple[tuple[int, int, int], ...], ...] = field(init=False)
    makers: list[Callable[[Any, Any], Any]] = field(init=False, default_factory=list)
    inexact: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        for name, single in (("sizes", "size"), ("widths", "width"), ("mask_widths", "mask_width")):
            numbers = tuple(getattr(leaf, single) for leaf in self.leaves)
            object.__setattr__(self, name, numbers)
            object.__setattr__(self, single, sum(numbers))
        object.__setattr__(self, "mask_columns", self._mask_columns())
        object.__setattr__(self, "some_whole", any(leaf.whole for leaf in self.leaves))
        object.__setattr__(self, "grow", _grower(self.root, itertools.count()))
        object.__setattr__(self, "groups", grouped([_bound(leaf.dist) for leaf in self.leaves], self.leaves))
        object.__setattr__(self, "cuts", tuple(map(self._cuts, self.groups)))
        masked = [group for group in self.groups if any(self.mask_widths[i] for i in group.leaves)]
        object.__setattr__(self, "several_masked", len(masked) > 1)

    def _mask_columns(self) -> tuple[int, ...] | None:
        found: list[int] = []
        start = 0
        for leaf in self.leaves:
            bakes = getattr(_bound(leaf.dist)[0], "masked", None)
            if leaf.mask_width == 0:
                found += [self.mask_width] * leaf.size
            elif leaf.mask_width == leaf.size and getattr(bakes, "__func__", None) is _FILLS:
                found += range(start, start + leaf.size)
            else:
                return None
            start += leaf.mask_width
        return tuple(found)

    def _cuts(self, group: Group) -> int | tuple[tuple[int, int, int], ...]:
        if len(group.leaves) == 1:
            return group.leaves[0]
        starts = itertools.accumulate((self.widths[i] for i in group.leaves), initial=0)
        places = zip(group.leaves, starts)  # noqa: B905  # the last start is the end
        return tuple((i, start, -1 if self.leaves[i].single else self.widths[i]) for i, start in places)

    def structure(self, parts: Sequence[Any], dicts: Dicts | None = None) -> Any:
        """Return the leaves' values as the space's structure: a tuple, or a dict in the space's order.

        Args:
            parts: The values.
            dicts: To this list, every dict in the structure is appended, and its values as they are now.
        """
        return self.grow(parts, [] if dicts is None else dicts)

    def parts(self, value: Any) -> list[Any]:
        """Return the leaves' values out of a structure (a dict in any order), or out of a flat list of them.

        Raises:
            ModelContractError: The structure is not the space's.
        """
        if isinstance(value, TupleActions):
            value = value.batches
        if isinstance(value, list | tuple):
            if len(value) == len(self.leaves) and not any(isinstance(v, Mapping | list | tuple) for v in value):
                return list(value)
            if len(value) != len(self.counts) and self.root.keys is None:
                raise ModelContractError(
                    f"{self.root.path}: expected {len(self.counts)} parts, or one for each of the {len(self.leaves)}"
                    f" leaves, found {len(value)}."
                )
        found: list[Any] = []
        _collect(self.root, value, found)
        return found

    def check_flat(self, shape: Sequence[int | None], rows: int | None) -> None:
        """Raise unless a flat array of actions is `[rows, width]`; None is what is not known yet.

        Raises:
            ModelContractError: It has another shape.
        """
        known = len(shape) == 2 and shape[0] is not None and rows is not None
        if len(shape) != 2 or shape[1] not in (None, self.width) or (known and shape[0] != rows):
            widths = ", ".join(f"{leaf.path}: {leaf.width}" for leaf in self.leaves)
            raise ModelContractError(
                f"{self.root.path}: expected actions of shape {(rows, self.width)} ({widths}), found {tuple(shape)}."
            )

    def check_part(self, leaf: Leaf, count: int, rows: int, shape: Any) -> None:
        """Raise unless a leaf's part has as many values as it must.

        Raises:
            ModelContractError: It has more or fewer.
        """
        if count != rows * leaf.width:
            raise ModelContractError(
                f"{leaf.path}: expected {leaf.width} raw value{'s' * (leaf.width != 1)} for each of {rows} rows, found"
                f" shape {tuple(shape)}."
            )


def mask_width(info: SpaceInfo) -> int:
    """Return the number of mask columns of an action space: 0 for what cannot be masked."""
    return sum(count for _, count in groups(info))


def layout_of(child_distributions: Sequence[Any], input_lens: Sequence[int], action_space: Any) -> Layout:
    """Return the layout of a composite; that of the same objects is remembered.

    Args:
        child_distributions: What makes the distributions: one for each child of the space, or one for each leaf.
        input_lens: Their numbers of model outputs.
        action_space: The Tuple or Dict space, or its SpaceInfo.

    Raises:
        ModelContractError: The numbers do not fit together.
        UnsupportedSpaceError: The space is no Tuple or Dict.
    """
    # The very tuples that the catalog bound to a class are looked up by themselves alone.
    if type(child_distributions) is tuple and type(input_lens) is tuple:
        key: Any = id(child_distributions), id(input_lens), id(action_space)
    else:
        key = tuple(map(id, child_distributions)), tuple(input_lens), id(action_space)
    found = _REMEMBERED.get(key)
    if found is None:
        if len(_REMEMBERED) >= _MOST:
            _REMEMBERED.clear()
        layout = _read(list(child_distributions), [int(n) for n in input_lens], action_space)
        # The objects are kept with their layout, so that no other object is given the id of one of them.
        objects = child_distributions, tuple(child_distributions), input_lens, action_space
        found = _REMEMBERED[key] = (layout, objects)
    return found[0]


_REMEMBERED: dict[Any, tuple[Layout, Any]] = {}
_MOST = 256


def _read(dists: list[Any], sizes: list[int], action_space: Any) -> Layout:
    if action_space is None:
        raise ModelContractError("MultiActionDistribution needs the space it serves: pass action_space=.")
    info = action_space if isinstance(action_space, SpaceInfo) else SpaceInfo.read(action_space, "action")
    if not _is_composite(info) or not info.children:
        raise UnsupportedSpaceError(
            f"{info.path}: MultiActionDistribution takes a Tuple or Dict with parts, found {info.describe()}."
        )
    leaves: list[Leaf] = []
    return _layout(_node(info, dists, sizes, leaves), leaves)


def _layout(root: Node, leaves: list[Leaf]) -> Layout:
    return Layout(root, tuple(leaves), tuple(_leaf_count(child) for child in root.children))


def _node(info: SpaceInfo, dists: Sequence[Any], sizes: Sequence[int], leaves: list[Leaf]) -> Node:
    """Read a composite and what makes its distributions; its leaves are appended to `leaves`."""
    if len(dists) != len(sizes):
        raise ModelContractError(f"{info.path}: found {len(dists)} child_distributions, but {len(sizes)} input_lens.")
    count = sum(not _is_composite(node) for node in info.walk())
    opened = any(_is_composite(c) and "child_distributions" in _bound(d)[1] for c, d in zip(info.children, dists))  # noqa: B905
    if len(dists) == count and not opened:
        return _of_leaves(info, iter(zip(dists, sizes, strict=True)), leaves)
    if len(dists) != len(info.children):
        raise ModelContractError(
            f"{info.path}: expected {len(info.children)} child_distributions, or one for each of the {count} leaves of"
            f" {info.describe()}, found {len(dists)}."
        )
    children: list[Node | None] = []
    for child, dist, size in zip(info.children, dists, sizes, strict=True):
        cls, options = _bound(dist)
        # A composite inside this one is taken apart, unless it is of a class that changes what composites do.
        if _is_composite(child) and getattr(cls, "__dict__", {}).get("taken_apart"):
            if sum(options["input_lens"]) != size:
                raise ModelContractError(
                    f"{child.path}: its parts take {list(options['input_lens'])} model outputs, not {size} in all."
                )
            children.append(_node(child, options["child_distributions"], options["input_lens"], leaves))
        else:
            leaves.append(_leaf(child, dist, size))
            children.append(None)
    return Node(info.path, info.keys if info.kind == "dict" else None, tuple(children))


def _of_leaves(info: SpaceInfo, given: Iterator[tuple[Any, int]], leaves: list[Leaf]) -> Node:
    children: list[Node | None] = []
    for child in info.children:
        if _is_composite(child):
            children.append(_of_leaves(child, given, leaves))
        else:
            leaves.append(_leaf(child, *next(given)))
            children.append(None)
    return Node(info.path, info.keys if info.kind == "dict" else None, tuple(children))


def _leaf(info: SpaceInfo, dist: Any, size: int) -> Leaf:
    cls, options = _bound(dist)
    inner = None
    if _is_composite(info):
        if "child_distributions" in options:
            inner = layout_of(options["child_distributions"], options["input_lens"], info)
        else:
            parts: list[Leaf] = []
            inner = _layout(_of_leaves(info, itertools.repeat((None, 0)), parts), parts)
    onehot = info.kind == "discrete" and getattr(cls, "raw_kind", "values") == "onehot"
    return Leaf(
        path=info.path,
        kind=info.kind,
        dist=dist,
        size=int(size),
        width=inner.width if inner else (info.n or 0) if onehot else raw_width(info),
        mask_width=mask_width(info),
        whole=info.kind in _WHOLE and not onehot,
        single=info.kind == "discrete" and not onehot,
        inner=inner,
    )


def _bound(dist: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a distribution's class and the options bound to it."""
    if isinstance(dist, functools.partial):
        return dist.func, dist.keywords
    return (dist.cls, dist.options) if isinstance(dist, BoundDistribution) else (dist, {})


def masking(dist: Any) -> Callable[[Any, Any], Any]:
    """Return the function `(inputs, mask)` that bakes a mask into the inputs of a child's distribution."""
    cls, options = _bound(dist)
    return functools.partial(cls.masked, **options)


def _is_composite(info: SpaceInfo) -> bool:
    return info.kind in ("tuple", "dict")


def _leaf_count(node: Node | None) -> int:
    return 1 if node is None else sum(_leaf_count(child) for child in node.children)


def _grower(node: Node, places: Iterator[int]) -> Callable[[Sequence[Any], Dicts], Any]:
    """Return the function that makes a node's structure out of the values of all leaves."""
    plan = [next(places) if child is None else _grower(child, places) for child in node.children]
    first, stop, keys = plan[0], len(plan), node.keys
    if all(isinstance(step, int) for step in plan):  # leaves alone, one after the other
        assert isinstance(first, int)
        run = slice(first, first + stop)

        def values(parts: Sequence[Any], dicts: Dicts) -> list[Any]:
            return parts[run]  # type: ignore[return-value]
    else:

        def values(parts: Sequence[Any], dicts: Dicts) -> list[Any]:
            return [parts[step] if isinstance(step, int) else step(parts, dicts) for step in plan]

    if keys is None:
        return lambda parts, dicts: tuple(values(parts, dicts))

    def made(parts: Sequence[Any], dicts: Dicts) -> dict[str, Any]:
        found = values(parts, dicts)
        result = dict(zip(keys, found, strict=True))
        dicts.append((result, found))
        return result

    return made


def _collect(node: Node, value: Any, found: list[Any]) -> None:
    if node.keys is not None:
        if not isinstance(value, Mapping) or value.keys() != set(node.keys):
            given = f"one with the keys {list(value)}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
            raise ModelContractError(f"{node.path}: expected a dict with the keys {list(node.keys)}, found {given}.")
        value = [value[key] for key in node.keys]
    elif isinstance(value, TupleActions):
        value = value.batches
    if not isinstance(value, list | tuple) or len(value) != len(node.children):
        given = f"{len(value)} parts" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
        raise ModelContractError(f"{node.path}: expected a tuple of {len(node.children)} parts, found {given}.")
    for child, part in zip(node.children, value, strict=True):
        if child is None:
            found.append(part)
        else:
            _collect(child, part, found)
