"""How the parts of a Tuple or Dict lie side by side in flat tensors: of model outputs, of raw actions and of masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

from rlcatalog import SpaceInfo, TupleActions
from rlcatalog.adapters import raw_width
from rlcatalog.distribution import BoundDistribution
from rlcatalog.errors import ModelContractError, UnsupportedSpaceError
from rlcatalog.masks import groups


class Cut:
    """How the columns of `[B, n]` are cut into pieces.

    Args:
        widths: Number of columns of each piece.
        order: The columns in the order into which they are brought before.

    Attributes:
        order: The same, or None where they stand in that order already.
    """

    def __init__(self, widths: Iterable[int], order: Sequence[int] = ()) -> None:
        self.widths = tuple(widths)
        self.total = sum(self.widths)
        self.order = None if list(order) == list(range(len(order))) else tuple(order)


@dataclass(frozen=True, eq=False)
class Leaf:
    """A node of the space that has no children.

    Attributes:
        path: Where it stands, such as `action['arm'][0]`.
        width: Number of raw values of one action.
        whole: Whether they are whole numbers.
        single: Whether raw actions are `[B]`, those of a single Discrete, and not `[B, width]`.
    """

    path: str
    width: int
    whole: bool
    single: bool


@dataclass(frozen=True, eq=False)
class Part:
    """What has one distribution: a leaf, a composite that is left whole, or several leaves that share it.

    Attributes:
        info: Its node of the space, or the first of several.
        dist: Makes the distribution; called with `(inputs, model)`.
        size: Number of model outputs.
        mask_width: Number of mask columns.
        leaves: Its leaves, in the order of its raw actions.
        places: Where they stand among all leaves.
    """

    info: SpaceInfo
    dist: Any
    size: int
    mask_width: int
    leaves: tuple[Leaf, ...]
    places: tuple[int, ...]

    @cached_property
    def by_leaf(self) -> Cut:
        """Raw actions, leaf by leaf."""
        return Cut(leaf.width for leaf in self.leaves)

    @cached_property
    def whole(self) -> bool:
        """Whether raw actions are whole numbers."""
        return all(leaf.whole for leaf in self.leaves)

    @cached_property
    def is_leaf(self) -> bool:
        """Whether it is one leaf."""
        return len(self.leaves) == 1 and not is_composite(self.info)

    def masked(self, inputs: Any, mask: Any) -> Any:
        """Return its inputs with its columns of a mask baked in."""
        cls, options = bound(self.dist)
        return cls.masked(inputs, mask, **options) if self.mask_width else inputs


class Layout:
    """The parts of a composite space, in the space's order, and the groups that compute.

    Args:
        info: The space.
        parts: Its parts.

    Attributes:
        leaves: The leaves of all parts.
        counts: Number of parts of each child of the space.
        groups: Parts again; those of one family are joined into one (see `ActionDistribution.family`).
        inputs, masks: Model outputs and mask columns, part by part.
        actions: Raw actions, leaf by leaf.
        group_inputs, group_actions: Model outputs and raw actions, group by group.
        several_masked: Whether more than one group may have forbidden values.
    """

    def __init__(self, info: SpaceInfo, parts: Sequence[Part]) -> None:
        self.info, self.parts = info, tuple(parts)
        self.leaves = tuple(leaf for part in parts for leaf in part.leaves)
        self.counts = [sum(part.info in set(child.walk()) for part in parts) for child in info.children]
        self.inputs = Cut(part.size for part in parts)
        self.masks = Cut(part.mask_width for part in parts)
        self.actions = Cut(leaf.width for leaf in self.leaves)
        self.groups, input_order = _grouped(parts)
        self.group_inputs = Cut((group.size for group in self.groups), input_order)
        starts = [0, *accumulate(self.actions.widths)]
        places = [i for group in self.groups for i in group.places]
        action_order = [column for i in places for column in range(starts[i], starts[i + 1])]
        self.group_actions = Cut((group.by_leaf.total for group in self.groups), action_order)
        self.several_masked = sum(group.mask_width > 0 for group in self.groups) > 1

    def structure(self, values: Iterable[Any]) -> Any:
        """Return the leaves' values as the space's structure: tuples, and dicts in the space's order."""
        return _structure(self.info, iter(values))

    def values(self, actions: Any) -> list[Any]:
        """Return the leaves' values out of the space's structure (dicts in any order), or out of a flat list of them.

        Raises:
            ModelContractError: The structure is another.
        """
        if isinstance(actions, TupleActions):
            actions = actions.batches
        if isinstance(actions, list | tuple):
            if len(actions) == len(self.leaves) and not any(isinstance(x, Mapping | list | tuple) for x in actions):
                return list(actions)
            if self.info.kind == "tuple" and len(actions) != len(self.info.children):
                raise ModelContractError(
                    f"{self.info.path}: expected {len(self.info.children)} parts, or one for each of the"
                    f" {len(self.leaves)} leaves, found {len(actions)}."
                )
        return values_of(self.info, actions)


class Children(tuple[Any, ...]):
    """What makes the distributions of a space's children, bound to their layout, which is read only once."""

    layout: Layout


def layout_of(child_distributions: Sequence[Any], input_lens: Sequence[int], action_space: Any) -> Layout:
    """Return the layout of a composite.

    Args:
        child_distributions: What makes the distributions: one for each child of the space, or one for each leaf.
            `Children` bring their layout along.
        input_lens: Their numbers of model outputs.
        action_space: The Tuple or Dict space, or its SpaceInfo.

    Raises:
        ModelContractError: The numbers do not fit together.
        UnsupportedSpaceError: The space is no Tuple or Dict.
    """
    if isinstance(child_distributions, Children):
        return child_distributions.layout
    if action_space is None:
        raise ModelContractError("MultiActionDistribution needs the space it serves: pass action_space=.")
    info = action_space if isinstance(action_space, SpaceInfo) else SpaceInfo.read(action_space, "action")
    if not is_composite(info) or not info.children:
        raise UnsupportedSpaceError(
            f"{info.path}: MultiActionDistribution takes a Tuple or Dict with parts, found {info.describe()}."
        )
    parts: list[Part] = []
    place = 0
    for node, dist, size in _parts(info, child_distributions, input_lens):
        leaves = tuple(_leaves(node, dist))
        places = tuple(range(place, place + len(leaves)))
        parts.append(Part(node, dist, int(size), mask_width(node), leaves, places))
        place += len(leaves)
    return Layout(info, parts)


def bound(dist: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a distribution's class and the options bound to it."""
    if isinstance(dist, partial):
        return dist.func, dist.keywords
    return (dist.cls, dist.options) if isinstance(dist, BoundDistribution) else (dist, {})


def mask_width(info: SpaceInfo) -> int:
    """Return the number of mask columns of an action space: 0 for what cannot be masked."""
    return sum(count for _, count in groups(info))


def is_composite(info: SpaceInfo) -> bool:
    """Whether a space is a Tuple or Dict."""
    return info.kind in ("tuple", "dict")


def values_of(info: SpaceInfo, actions: Any) -> list[Any]:
    """Return the leaves' values, depth first, out of the structure of a space.

    Raises:
        ModelContractError: The structure is another.
    """
    if not is_composite(info):
        return [actions]
    if info.kind == "dict":
        if not isinstance(actions, Mapping) or actions.keys() != set(info.keys):
            found = f"one with the keys {list(actions)}" if isinstance(actions, Mapping) else _named(actions)
            raise ModelContractError(f"{info.path}: expected a dict with the keys {list(info.keys)}, found {found}.")
        actions = [actions[key] for key in info.keys]
    elif isinstance(actions, TupleActions):
        actions = actions.batches
    if not isinstance(actions, list | tuple) or len(actions) != len(info.children):
        found = f"{len(actions)} parts" if isinstance(actions, list | tuple) else _named(actions)
        raise ModelContractError(f"{info.path}: expected a tuple of {len(info.children)} parts, found {found}.")
    return [value for child, part in zip(info.children, actions, strict=True) for value in values_of(child, part)]


def _named(value: Any) -> str:
    return f"a {type(value).__name__}"


def _structure(info: SpaceInfo, values: Iterator[Any]) -> Any:
    if not is_composite(info):
        return next(values)
    parts = [_structure(child, values) for child in info.children]
    return dict(zip(info.keys, parts, strict=True)) if info.kind == "dict" else tuple(parts)


def _leaf_nodes(info: SpaceInfo) -> list[SpaceInfo]:
    return [leaf for child in info.children for leaf in _leaf_nodes(child)] if is_composite(info) else [info]


def _parts(info: SpaceInfo, dists: Sequence[Any], sizes: Sequence[int]) -> Iterator[tuple[SpaceInfo, Any, int]]:
    """Yield node, distribution and number of inputs of each part of a composite, depth first."""
    if len(dists) != len(sizes):
        raise ModelContractError(f"{info.path}: found {len(dists)} child_distributions, but {len(sizes)} input_lens.")
    leaves = _leaf_nodes(info)
    nested = any(is_composite(child) and "child_distributions" in bound(d)[1] for child, d in zip(info.children, dists))  # noqa: B905
    if len(dists) == len(leaves) and not nested:
        yield from zip(leaves, dists, sizes, strict=True)
        return
    if len(dists) != len(info.children):
        raise ModelContractError(
            f"{info.path}: expected {len(info.children)} child_distributions, or one for each of the {len(leaves)}"
            f" leaves of {info.describe()}, found {len(dists)}."
        )
    for child, dist, size in zip(info.children, dists, sizes, strict=True):
        cls, options = bound(dist)
        # A composite inside this one is taken apart, unless it is of a class that changes what composites do.
        if not is_composite(child) or "taken_apart" not in getattr(cls, "__dict__", ()):
            yield child, dist, size
            continue
        if sum(options["input_lens"]) != size:
            raise ModelContractError(
                f"{child.path}: its parts take {list(options['input_lens'])} model outputs, not {size} in all."
            )
        yield from _parts(child, options["child_distributions"], options["input_lens"])


def _leaves(info: SpaceInfo, dist: Any) -> Iterator[Leaf]:
    """Yield the leaves of a part, depth first."""
    cls, options = bound(dist)
    if not is_composite(info):
        onehot = info.kind == "discrete" and getattr(cls, "raw_kind", "values") == "onehot"
        width = raw_width(info, {info.path: "onehot"} if onehot else {})
        whole = info.kind in ("discrete", "multi_discrete", "multi_binary") and not onehot
        yield Leaf(info.path, width, whole, single=info.kind == "discrete" and not onehot)
    elif "child_distributions" in options:
        for node, own, _ in _parts(info, options["child_distributions"], options["input_lens"]):
            yield from _leaves(node, own)
    else:
        for node in info.children:
            yield from _leaves(node, None)


def _grouped(parts: Sequence[Part]) -> tuple[tuple[Part, ...], list[int]]:
    """Join the parts of each family; return the groups, and their columns of model outputs in order."""
    starts = [0, *accumulate(part.size for part in parts)]
    families: dict[Any, list[int]] = {}
    for i, part in enumerate(parts):
        cls, options = bound(part.dist)
        family = cls.family(options) if hasattr(cls, "family") else None
        # Whole numbers and others are not joined: flat actions are rounded group by group.
        families.setdefault(i if family is None else (family, part.whole), []).append(i)
    found: list[Part] = []
    order: list[int] = []
    for members in families.values():
        several = [parts[i] for i in members]
        if len(several) == 1:
            found.append(several[0])
            order += range(starts[members[0]], starts[members[0] + 1])
            continue
        cls = bound(several[0].dist)[0]
        dist, runs = cls.side_by_side([(bound(part.dist)[1], part.size) for part in several])
        for m, first, stop in runs:
            order += range(starts[members[m]] + first, starts[members[m]] + stop)
        found.append(
            Part(
                info=several[0].info,
                dist=dist,
                size=sum(part.size for part in several),
                mask_width=sum(part.mask_width for part in several),
                leaves=tuple(leaf for part in several for leaf in part.leaves),
                places=tuple(place for part in several for place in part.places),
            )
        )
    return tuple(found), order
