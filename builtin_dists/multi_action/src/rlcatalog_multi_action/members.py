"""Layout of a Tuple's or Dict's members in flat tensors of model outputs, raw actions and masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

from rlcatalog import SpaceInfo, TupleActions
from rlcatalog.actions import ActionDistribution, action_codec, unbind
from rlcatalog.errors import ModelContractError, UnsupportedSpaceError

_SEQUENCES = (list, tuple)


class Cut:
    """Reordering of the columns of a tensor `[B, n]`, and a split into pieces of the given
    `widths`.
    """

    def __init__(self, widths: Iterable[int], order: Sequence[int] = ()) -> None:
        self.widths = tuple(widths)
        self.total = sum(self.widths)
        #: None if the columns are already in that order.
        self.order = None if list(order) == list(range(len(order))) else tuple(order)


@dataclass(frozen=True, eq=False)
class Leaf:
    """Leaf of the space: a node without children.

    Attributes:
        path: Its path, such as `action['arm'][0]`.
        width: Number of raw values of one action.
        whole: Whether the values are integers.
        single: Whether raw actions have the shape `[B]`, as for a single Discrete, instead of
            `[B, width]`.
    """

    path: str
    width: int
    whole: bool
    single: bool


@dataclass(frozen=True, eq=False)
class Member:
    """Distribution within a composite: for one leaf, for a composite that is not split, or for
    several leaves.

    Attributes:
        info: Its node in the space, or the first of several nodes.
        dist: Factory for the distribution, called with `(inputs, model)`.
        size: Number of model outputs.
        mask_width: Number of mask columns.
        leaves: The distribution's leaves, in the order of its raw actions.
        places: The positions of these leaves among all leaves.
    """

    info: SpaceInfo
    dist: Any
    size: int
    mask_width: int
    leaves: tuple[Leaf, ...]
    places: tuple[int, ...]

    @cached_property
    def by_leaf(self) -> Cut:
        """Columns of raw actions by leaf."""
        return Cut(leaf.width for leaf in self.leaves)

    @cached_property
    def whole(self) -> bool:
        """Whether raw actions are integers."""
        return all(leaf.whole for leaf in self.leaves)

    @cached_property
    def is_leaf(self) -> bool:
        """Whether the space is a single leaf."""
        return len(self.leaves) == 1 and not self.info.is_composite

    @cached_property
    def fills(self) -> bool:
        """Whether a mask applies to single inputs, so that neighbouring parts can be masked
        together.
        """
        own = getattr(getattr(unbind(self.dist)[0], "masked", None), "__func__", None)
        return own is ActionDistribution.masked.__func__ and 0 < self.mask_width == self.size  # type: ignore[attr-defined]

    def masked(self, inputs: Any, mask: Any) -> Any:
        """Return inputs with a mask applied."""
        cls, options = unbind(self.dist)
        return cls.masked(inputs, mask, **options) if self.mask_width else inputs


class MemberColumns:
    """Parts of a composite space, in the space's order, and the groups in which they are evaluated.

    Attributes:
        info: The space.
        parts: Its parts.
        leaves: Their leaves.
        counts: Number of parts in each child of the space.
        groups: The groups; parts of the same family form one group (see
            `ActionDistribution.family`).
        runs: Neighbouring parts that are masked together.
        inputs, run_inputs, group_inputs: Columns of the model outputs by part, by run and by group.
        run_masks: Mask columns by run.
        actions, group_actions: Columns of the raw actions by leaf and by group.
        several_masked: Whether values can be forbidden in more than one group.
    """

    def __init__(self, info: SpaceInfo, parts: Sequence[Member]) -> None:
        self.info, self.parts = info, parts
        self.leaves = [leaf for part in parts for leaf in part.leaves]
        child_of = {node: i for i, child in enumerate(info.children) for node in child.walk()}
        self.counts = [0] * len(info.children)
        for part in parts:
            self.counts[child_of[part.info]] += 1
        self.runs = [list(run) for _, run in groupby(parts, key=lambda part: part.fills or part)]
        self.groups, input_order = _group(parts)
        self.several_masked = sum(group.mask_width > 0 for group in self.groups) > 1

        self.inputs = Cut(part.size for part in parts)
        self.run_inputs = Cut(sum(part.size for part in run) for run in self.runs)
        self.run_masks = Cut(sum(part.mask_width for part in run) for run in self.runs)
        self.group_inputs = Cut((group.size for group in self.groups), input_order)
        self.actions = Cut(leaf.width for leaf in self.leaves)
        starts = [0, *accumulate(self.actions.widths)]
        places = [place for group in self.groups for place in group.places]
        action_order = [
            column for place in places for column in range(starts[place], starts[place + 1])
        ]
        self.group_actions = Cut((group.by_leaf.total for group in self.groups), action_order)

    def structure(self, values: Iterable[Any]) -> Any:
        """Arrange the leaves' values in the space's structure: tuples, and dicts in the space's
        order.
        """
        return _structure(self.info, iter(values))

    def values(self, actions: Any) -> list[Any]:
        """Return the leaves' values, taken from the space's structure (dicts in any order) or from
        a flat list.

        Raises:
            ModelContractError: The structure is wrong.
        """
        given = actions.batches if isinstance(actions, TupleActions) else actions
        if isinstance(given, _SEQUENCES) and len(given) == len(self.leaves):
            if not any(isinstance(value, (Mapping, *_SEQUENCES)) for value in given):
                return list(given)
        elif (
            isinstance(given, _SEQUENCES)
            and self.info.kind == "tuple"
            and len(given) != len(self.info.children)
        ):
            raise ModelContractError(
                f"{self.info.path}: expected {len(self.info.children)} parts, or one for each of"
                f" the {len(self.leaves)} leaves, found {len(given)}."
            )
        return values_of(self.info, given)


class Children(tuple[Any, ...]):
    """Factories for the distributions of a space's children, together with their cached layout."""

    layout: MemberColumns


def layout_of(
    child_distributions: Sequence[Any], input_lens: Sequence[int], action_space: Any
) -> MemberColumns:
    """Return the layout of a composite.

    Args:
        child_distributions: Factories for the distributions, one for each child of the space or for
            each leaf.
            A `Children` object already contains the layout.
        input_lens: The number of model outputs that each distribution takes.
        action_space: The Tuple or Dict space, or its SpaceInfo.

    Raises:
        ModelContractError: The numbers do not match.
        UnsupportedSpaceError: The space is neither a Tuple nor a Dict.
    """
    if isinstance(child_distributions, Children):
        return child_distributions.layout
    if action_space is None:
        raise ModelContractError("MultiActionDistribution needs its space: pass action_space=.")
    info = (
        action_space
        if isinstance(action_space, SpaceInfo)
        else SpaceInfo.read(action_space, "action")
    )
    if not info.is_composite or not info.children:
        raise UnsupportedSpaceError(
            f"{info.path}: MultiActionDistribution needs a non-empty Tuple or Dict, found"
            f" {info.describe()}."
        )
    parts: list[Member] = []
    place = 0
    for node, dist, size in _given(info, child_distributions, input_lens):
        leaves = tuple(_leaves(node, dist))
        places = tuple(range(place, place + len(leaves)))
        parts.append(Member(node, dist, int(size), action_codec(node).mask_width, leaves, places))
        place += len(leaves)
    return MemberColumns(info, parts)


def values_of(info: SpaceInfo, actions: Any) -> list[Any]:
    """Return the leaf values of a Tuple or Dict, depth first.

    Raises:
        ModelContractError: The structure is wrong.
    """
    parts: Any
    if info.kind == "dict":
        if not isinstance(actions, Mapping) or actions.keys() != set(info.keys):
            found = (
                f"one with the keys {list(actions)}"
                if isinstance(actions, Mapping)
                else _kind(actions)
            )
            raise ModelContractError(
                f"{info.path}: expected a dict with the keys {list(info.keys)}, found {found}."
            )
        parts = [actions[key] for key in info.keys]
    else:
        parts = actions.batches if isinstance(actions, TupleActions) else actions
        if not isinstance(parts, _SEQUENCES) or len(parts) != len(info.children):
            found = f"{len(parts)} parts" if isinstance(parts, _SEQUENCES) else _kind(parts)
            raise ModelContractError(
                f"{info.path}: expected a tuple of {len(info.children)} parts, found {found}."
            )
    values: list[Any] = []
    for child, part in zip(info.children, parts, strict=True):
        values += values_of(child, part) if child.is_composite else [part]
    return values


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _structure(info: SpaceInfo, values: Iterator[Any]) -> Any:
    parts = [
        _structure(child, values) if child.is_composite else next(values) for child in info.children
    ]
    return info.join(parts)


def _leaf_nodes(info: SpaceInfo) -> list[SpaceInfo]:
    return (
        [leaf for child in info.children for leaf in _leaf_nodes(child)]
        if info.is_composite
        else [info]
    )


def _leaves(info: SpaceInfo, dist: Any) -> list[Leaf]:
    """Return the leaves of a part, depth first."""
    cls, options = unbind(dist)
    if "child_distributions" in options:
        parts = _given(info, options["child_distributions"], options["input_lens"])
        return [leaf for node, own, _ in parts for leaf in _leaves(node, own)]
    if info.is_composite:
        return [leaf for child in info.children for leaf in _leaves(child, None)]
    codec = action_codec(info, raw_kinds={info.path: getattr(cls, "raw_kind", "values")})
    return [Leaf(info.path, codec.width, codec.whole, codec.scalar)]


def _given(
    info: SpaceInfo, dists: Sequence[Any], sizes: Sequence[int]
) -> Iterator[tuple[SpaceInfo, Any, int]]:
    """Yield each part's node, distribution and number of model outputs, depth first."""
    if len(dists) != len(sizes):
        raise ModelContractError(
            f"{info.path}: found {len(dists)} child_distributions, but {len(sizes)} input_lens."
        )
    leaves = _leaf_nodes(info)
    nested = any("child_distributions" in unbind(dist)[1] for dist in dists)
    if len(dists) == len(leaves) and not nested:
        yield from zip(leaves, dists, sizes, strict=True)
        return
    if len(dists) != len(info.children):
        raise ModelContractError(
            f"{info.path}: expected {len(info.children)} child_distributions, or one for each of"
            f" the {len(leaves)} leaves of {info.describe()}, found {len(dists)}."
        )
    for child, dist, size in zip(info.children, dists, sizes, strict=True):
        cls, options = unbind(dist)
        # Flatten a composite inside this one, unless its class changes the behaviour of composites.
        if not child.is_composite or "taken_apart" not in getattr(cls, "__dict__", ()):
            yield child, dist, size
            continue
        if sum(options["input_lens"]) != size:
            raise ModelContractError(
                f"{child.path}: its parts take {list(options['input_lens'])} model outputs in"
                f" total, but {size} were expected."
            )
        yield from _given(child, options["child_distributions"], options["input_lens"])


def _group(parts: Sequence[Member]) -> tuple[list[Member], list[int]]:
    """Join the parts of each family; return the groups, and the model-output columns in the groups'
    order.
    """
    starts = [0, *accumulate(part.size for part in parts)]
    families: dict[Any, list[int]] = {}
    for i, part in enumerate(parts):
        cls, options = unbind(part.dist)
        family = cls.family(options) if hasattr(cls, "family") else None
        # Integers and floats are not joined, because flat actions are rounded by group.
        families.setdefault(i if family is None else (family, part.whole), []).append(i)
    found: list[Member] = []
    order: list[int] = []
    for members in families.values():
        several = [parts[i] for i in members]
        group, runs = several[0], [(0, 0, several[0].size)]
        if len(several) > 1:
            dist, runs = unbind(group.dist)[0].side_by_side(
                [(unbind(part.dist)[1], part.size) for part in several]
            )
            group = Member(
                group.info,
                dist,
                sum(part.size for part in several),
                sum(part.mask_width for part in several),
                tuple(leaf for part in several for leaf in part.leaves),
                tuple(place for part in several for place in part.places),
            )
        found.append(group)
        for member, first, stop in runs:
            start = starts[members[member]]
            order += range(start + first, start + stop)
    return found, order
