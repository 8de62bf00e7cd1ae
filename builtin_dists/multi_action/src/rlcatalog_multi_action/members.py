"""Layout of a Tuple's, Dict's or OneOf's members in flat tensors of model outputs, raw actions and
masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from gymnasium import Space

from rlcatalog import SpaceInfo, TupleActions
from rlcatalog.actions import ActionDistribution, action_codec, unbind
from rlcatalog.errors import ModelContractError, UnsupportedSpaceError
from rlcatalog.frameworks import Tensor, TensorTree

_SEQUENCES = (list, tuple)
#: A distribution's class, possibly with options bound to it, or a function; it takes
#: `(inputs, model)`.
Factory = Callable[..., Any]


class Cut:
    """Reordering of the columns of a tensor `[B, n]`, and a split into pieces of the given
    `widths`.
    """

    def __init__(self, widths: Iterable[int], order: Sequence[int] = ()) -> None:
        self.widths = tuple(widths)
        self.total = sum(self.widths)
        #: None if the columns are already in that order.
        self.order: tuple[int, ...] | None = None
        is_reordering = list(order) != list(range(len(order)))
        if is_reordering:
            self.order = tuple(order)


@dataclass(frozen=True, eq=False)
class Leaf:
    """Leaf of the space: a node whose raw actions are one tensor, such as a Discrete or a OneOf.

    Attributes:
        path: Its path, such as `action['arm'][0]`.
        width: Number of raw values of one action.
        is_integer: Whether the values are integers.
        is_scalar: Whether raw actions have the shape `[B]`, as for a single Discrete, instead of
            `[B, width]`.
    """

    path: str
    width: int
    is_integer: bool
    is_scalar: bool


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
        leaf_places: The positions of these leaves among all leaves.
    """

    info: SpaceInfo
    dist: Factory
    size: int
    mask_width: int
    leaves: tuple[Leaf, ...]
    leaf_places: tuple[int, ...]

    @cached_property
    def columns_by_leaf(self) -> Cut:
        """Columns of raw actions by leaf."""
        return Cut(_widths(self.leaves))

    @cached_property
    def is_integer(self) -> bool:
        """Whether raw actions are integers."""
        return all(leaf.is_integer for leaf in self.leaves)

    @cached_property
    def is_leaf(self) -> bool:
        """Whether the space is a single leaf."""
        return len(self.leaves) == 1 and not self.info.is_composite

    @cached_property
    def is_scalar(self) -> bool:
        """Whether raw actions have the shape `[B]`, as for a single Discrete."""
        return self.is_leaf and self.leaves[0].is_scalar

    @cached_property
    def has_mask_per_input(self) -> bool:
        """Whether a mask has a column for each input and is applied as by `ActionDistribution`, so
        that neighbouring parts can be masked together.
        """
        cls, _ = unbind(self.dist)
        # The user's class or function may not derive from ActionDistribution.
        method = getattr(getattr(cls, "masked", None), "__func__", None)
        is_default = method is ActionDistribution.masked.__func__  # type: ignore[attr-defined]
        return is_default and 0 < self.mask_width == self.size

    def masked(self, inputs: Tensor, mask: Tensor) -> Any:
        """Return inputs with a mask applied."""
        if not self.mask_width:
            return inputs
        cls, options = unbind(self.dist)
        return cls.masked(inputs, mask, **options)


class MemberColumns:
    """Parts of a composite space, in the space's order, and the groups in which they are evaluated.

    Attributes:
        info: The space.
        parts: Its parts.
        leaves: Their leaves.
        parts_per_child: Number of parts in each child of the space.
        groups: The groups; parts of the same family form one group (see
            `ActionDistribution.family`).
        runs: Neighbouring parts that are masked together.
        inputs, run_inputs, group_inputs: Columns of the model outputs by part, by run and by group.
        run_masks: Mask columns by run.
        actions, group_actions: Columns of the raw actions by leaf and by group.
        has_several_masks: Whether values can be forbidden in more than one group.
    """

    def __init__(self, info: SpaceInfo, parts: Sequence[Member]) -> None:
        self.info = info
        self.parts = parts
        self.leaves = _all_leaves(parts)
        self.parts_per_child = _parts_per_child(info, parts)
        self.runs = _mask_runs(parts)
        self.groups, input_order = _group(parts)

        self.inputs = Cut(_sizes(parts))
        run_sizes: list[int] = []
        run_mask_widths: list[int] = []
        for run in self.runs:
            run_sizes.append(sum(_sizes(run)))
            run_mask_widths.append(sum(_mask_widths(run)))
        self.run_inputs = Cut(run_sizes)
        self.run_masks = Cut(run_mask_widths)
        self.group_inputs = Cut(_sizes(self.groups), input_order)
        self.actions = Cut(_widths(self.leaves))
        # Where each leaf's columns begin in flat actions, and where the last one's end.
        starts = [0, *accumulate(self.actions.widths)]
        groups_with_mask = 0
        group_widths: list[int] = []
        action_order: list[int] = []
        for group in self.groups:
            if group.mask_width:
                groups_with_mask += 1
            group_widths.append(group.columns_by_leaf.total)
            # Flat actions have the leaves in the space's order; a group reads the columns of its
            # own leaves.
            for place in group.leaf_places:
                action_order += range(starts[place], starts[place + 1])
        self.has_several_masks = groups_with_mask > 1
        self.group_actions = Cut(group_widths, action_order)

    def structure(self, values: Iterable[Tensor]) -> Any:
        """Arrange the leaves' values in the space's structure: tuples, and dicts in the space's
        order.
        """
        return _structure(self.info, iter(values))

    def values(self, actions: TensorTree | TupleActions) -> list[Any]:
        """Return the leaves' values, taken from the space's structure (dicts in any order) or from
        a flat list.

        Raises:
            ModelContractError: The structure is wrong.
        """
        parts = actions.batches if isinstance(actions, TupleActions) else actions
        if isinstance(parts, _SEQUENCES):
            if len(parts) == len(self.leaves):
                # A list with an entry for each leaf is flat, unless an entry is a structure.
                holds_structures = any(isinstance(part, (Mapping, *_SEQUENCES)) for part in parts)
                if not holds_structures:
                    return list(parts)
            elif self.info.kind == "tuple" and len(parts) != len(self.info.children):
                raise ModelContractError(
                    f"{self.info.path}: expected {len(self.info.children)} parts, or one for each"
                    f" of the {len(self.leaves)} leaves, found {len(parts)}."
                )
        return values_of(self.info, parts)


class OneOfColumns:
    """The choice and the parts of a OneOf, and their columns in flat tensors.

    Args:
        info: The space.
        dists: Factories for the distributions of the choice and of each part, called with
            `(inputs, model)`.
        sizes: The number of model outputs that each distribution takes.

    Attributes:
        info: The space.
        choice: The choice of a part.
        parts: The parts.
        codecs: The codecs of the parts, which read masks.
        inputs: Columns of the model outputs, by the choice and the parts.
        actions: Columns of the raw actions, by the choice and the parts.
        masks: Mask columns, by the choice and the parts.
        is_discrete: Whether all raw values are choices.

    Raises:
        UnsupportedSpaceError: The space is not a OneOf, or the choice's distribution does not draw
            the number of a part.
    """

    def __init__(self, info: SpaceInfo, dists: Sequence[Factory], sizes: Sequence[int]) -> None:
        if info.choice is None:
            raise UnsupportedSpaceError(
                f"{info.path}: OneOfDistribution needs a OneOf, found {info.describe()}."
            )
        self.info = info
        members = []
        codecs = []
        for node, dist, size in zip(info.action_parts, dists, sizes, strict=True):
            codec = action_codec(node)
            leaves = tuple(_leaves(node, dist))
            places = tuple(range(len(leaves)))
            members.append(Member(node, dist, int(size), codec.mask_width, leaves, places))
            codecs.append(codec)
        self.choice, *self.parts = members
        _, *self.codecs = codecs
        if not self.choice.is_scalar:
            cls, _ = unbind(self.choice.dist)
            raise UnsupportedSpaceError(
                f"{self.choice.info.path}: the distribution of the choice must draw the number of a"
                f" part, as 'categorical' does, but {cls.__name__} draws"
                f" {self.choice.columns_by_leaf.total} values. Name the distributions of the parts"
                f" by path: custom_action_dist={{{info.children[0].path!r}: …}}."
            )
        self.inputs = Cut(_sizes(members))
        self.actions = Cut(member.columns_by_leaf.total for member in members)
        self.masks = Cut(_mask_widths(members))
        self.is_discrete = all(member.is_integer for member in members)


class Children(tuple[Factory, ...]):
    """Factories for the distributions of a space's children, together with their cached layout."""

    layout: MemberColumns


def layout_of(
    child_distributions: Sequence[Factory],
    input_lens: Sequence[int],
    action_space: Space[Any] | SpaceInfo | None,
) -> MemberColumns:
    """Return the layout of a composite.

    Args:
        child_distributions: Factories for the distributions, one for each child of the space or for
            each leaf. A `Children` object already contains the layout.
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
    if isinstance(action_space, SpaceInfo):
        info = action_space
    else:
        info = SpaceInfo.read(action_space, "action")
    if not info.is_composite or not info.children:
        raise UnsupportedSpaceError(
            f"{info.path}: MultiActionDistribution needs a non-empty Tuple or Dict, found"
            f" {info.describe()}."
        )
    members: list[Member] = []
    num_leaves = 0
    for part in _parts_of(info, child_distributions, input_lens):
        leaves = tuple(_leaves(part.info, part.dist))
        places = tuple(range(num_leaves, num_leaves + len(leaves)))
        mask_width = action_codec(part.info).mask_width
        members.append(Member(part.info, part.dist, int(part.size), mask_width, leaves, places))
        num_leaves += len(leaves)
    return MemberColumns(info, members)


def values_of(info: SpaceInfo, actions: TensorTree | TupleActions | Sequence[Any]) -> list[Any]:
    """Return the leaf values of a Tuple or Dict, depth first.

    Raises:
        ModelContractError: The structure is wrong.
    """
    parts: Sequence[Any]
    if info.kind == "dict":
        if not isinstance(actions, Mapping) or actions.keys() != set(info.keys):
            raise _wrong_dict(info, actions)
        parts = [actions[key] for key in info.keys]
    else:
        items: Any = actions.batches if isinstance(actions, TupleActions) else actions
        if not isinstance(items, _SEQUENCES) or len(items) != len(info.children):
            raise _wrong_tuple(info, items)
        parts = items
    values: list[Any] = []
    for child, part in zip(info.children, parts, strict=True):
        if child.is_composite:
            values += values_of(child, part)
        else:
            values.append(part)
    return values


def _wrong_dict(info: SpaceInfo, actions: TensorTree | Sequence[Any]) -> ModelContractError:
    """Return the error for actions other than a dict with the space's keys."""
    description = _kind(actions)
    if isinstance(actions, Mapping):
        description = f"one with the keys {list(actions)}"
    return ModelContractError(
        f"{info.path}: expected a dict with the keys {list(info.keys)}, found {description}."
    )


def _wrong_tuple(info: SpaceInfo, actions: TensorTree | Sequence[Any]) -> ModelContractError:
    """Return the error for actions other than a tuple with a part for each child."""
    description = _kind(actions)
    if isinstance(actions, _SEQUENCES):
        description = f"{len(actions)} parts"
    return ModelContractError(
        f"{info.path}: expected a tuple of {len(info.children)} parts, found {description}."
    )


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _structure(info: SpaceInfo, values: Iterator[Tensor]) -> Any:
    """Arrange the next values of an iterator in a Tuple's or Dict's structure."""
    parts = []
    for child in info.children:
        part = _structure(child, values) if child.is_composite else next(values)
        parts.append(part)
    return info.join(parts)


# --- the parts of a space and their leaves --------------------------------------------------------


class _Part(NamedTuple):
    """A node of the space, the factory of its distribution, and the number of model outputs."""

    info: SpaceInfo
    dist: Factory
    size: int


def _parts_of(info: SpaceInfo, dists: Sequence[Factory], sizes: Sequence[int]) -> Iterator[_Part]:
    """Yield the parts of a Tuple or Dict, depth first.

    Args:
        info: The space.
        dists: Factories for the distributions, one for each child of the space or for each leaf.
        sizes: The number of model outputs that each distribution takes.

    Raises:
        ModelContractError: The numbers do not match.
    """
    if len(dists) != len(sizes):
        raise ModelContractError(
            f"{info.path}: found {len(dists)} child_distributions, but {len(sizes)} input_lens."
        )
    leaves = list(_leaf_nodes(info))
    has_composites = any(map(_joins_children, dists))
    has_dist_per_leaf = len(dists) == len(leaves) and not has_composites
    if has_dist_per_leaf:
        for leaf, dist, size in zip(leaves, dists, sizes, strict=True):
            yield _Part(leaf, dist, size)
        return
    if len(dists) != len(info.children):
        raise ModelContractError(
            f"{info.path}: expected {len(info.children)} child_distributions, or one for each of"
            f" the {len(leaves)} leaves of {info.describe()}, found {len(dists)}."
        )
    for child, dist, size in zip(info.children, dists, sizes, strict=True):
        if child.is_composite and _is_taken_apart(dist):
            # Parts of an inner composite become parts of this one, so that groups span both.
            yield from _parts_of_composite(child, dist, size)
        else:
            yield _Part(child, dist, size)


def _leaf_nodes(info: SpaceInfo) -> Iterator[SpaceInfo]:
    """Yield the nodes without an own structure of raw actions, depth first; a OneOf is one of
    them, because its raw actions are columns.
    """
    if not info.is_composite:
        yield info
    else:
        for child in info.children:
            yield from _leaf_nodes(child)


def _parts_of_composite(info: SpaceInfo, dist: Factory, size: int) -> Iterator[_Part]:
    """Yield the parts of a composite inside another one.

    Raises:
        ModelContractError: The numbers of model outputs do not add up to the composite's size.
    """
    # A composite's distribution holds those of its children, with their sizes.
    _, options = unbind(dist)
    sizes = options["input_lens"]
    if sum(sizes) != size:
        raise ModelContractError(
            f"{info.path}: its parts take {list(sizes)} model outputs in"
            f" total, but {size} were expected."
        )
    yield from _parts_of(info, options["child_distributions"], sizes)


def _joins_children(dist: Factory) -> bool:
    """Return whether a distribution is a composite with its children's distributions bound to
    it.
    """
    _, options = unbind(dist)
    return "child_distributions" in options


def _is_taken_apart(dist: Factory) -> bool:
    """Return whether a composite inside another one becomes parts of the outer one.

    Only the class itself can allow it, because a subclass may behave differently.
    """
    cls, _ = unbind(dist)
    # A user's factory may have no `__dict__`.
    return "taken_apart" in getattr(cls, "__dict__", ())


def _leaves(info: SpaceInfo, dist: Factory | None) -> list[Leaf]:
    """Return the leaves of a part, depth first.

    Args:
        info: The part's node.
        dist: The part's distribution; None inside a composite that is not split.
    """
    leaves: list[Leaf] = []
    if dist is not None:
        _, options = unbind(dist)
        if _joins_children(dist):
            for part in _parts_of(info, options["child_distributions"], options["input_lens"]):
                leaves += _leaves(part.info, part.dist)
            return leaves
    if info.is_composite:
        for child in info.children:
            leaves += _leaves(child, dist=None)
        return leaves
    codec = action_codec(info, raw_kinds=raw_kinds_of(info, dist))
    return [Leaf(info.path, codec.width, codec.whole, codec.scalar)]


def raw_kinds_of(info: SpaceInfo, dist: Factory | None) -> dict[str, str]:
    """Return the `raw_kind` of each leaf's distribution by path, for the codec of a part.

    Args:
        info: The part's node.
        dist: The part's distribution; None inside a composite that is not split.
    """
    if dist is None:
        return {}
    cls, options = unbind(dist)
    members: Iterable[Any] = ()
    if isinstance(options.get("layout"), OneOfColumns):
        layout = options["layout"]
        members = (layout.choice, *layout.parts)
    elif _joins_children(dist):
        members = _parts_of(info, options["child_distributions"], options["input_lens"])
    raw_kinds: dict[str, str] = {}
    for member in members:
        raw_kinds |= raw_kinds_of(member.info, member.dist)
    if not raw_kinds:
        # A user's distribution need not say what its raw values mean.
        raw_kinds[info.path] = getattr(cls, "raw_kind", "values")
    return raw_kinds


# --- which parts belong together ------------------------------------------------------------------


def _parts_per_child(info: SpaceInfo, parts: Sequence[Member]) -> list[int]:
    """Return the number of parts in each child of a space."""
    child_of: dict[SpaceInfo, int] = {}
    for i, child in enumerate(info.children):
        for node in child.walk():
            child_of[node] = i
    counts = [0] * len(info.children)
    for part in parts:
        counts[child_of[part.info]] += 1
    return counts


def _mask_runs(parts: Sequence[Member]) -> list[list[Member]]:
    """Split parts into runs of neighbours that can be masked together."""
    runs: list[list[Member]] = []
    for part in parts:
        if runs and part.has_mask_per_input and runs[-1][-1].has_mask_per_input:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _sizes(members: Iterable[Member]) -> list[int]:
    return [member.size for member in members]


def _mask_widths(members: Iterable[Member]) -> list[int]:
    return [member.mask_width for member in members]


def _widths(leaves: Iterable[Leaf]) -> list[int]:
    return [leaf.width for leaf in leaves]


def _all_leaves(members: Iterable[Member]) -> list[Leaf]:
    leaves: list[Leaf] = []
    for member in members:
        leaves += member.leaves
    return leaves


def _group(parts: Sequence[Member]) -> tuple[list[Member], list[int]]:
    """Join the parts of each family; return the groups, and the model-output columns in the groups'
    order.
    """
    #: The indices of the parts of each family.
    families: dict[Any, list[int]] = {}
    for i, part in enumerate(parts):
        family = _family_of(part)
        # A part without a family is a group of its own: its index is no other part's key.
        key = i if family is None else family
        families.setdefault(key, []).append(i)
    # Where each part's columns begin in the model outputs.
    starts = [0, *accumulate(_sizes(parts))]
    groups: list[Member] = []
    order: list[int] = []
    for indices in families.values():
        group, slices = _join([parts[i] for i in indices])
        groups.append(group)
        for member, first, stop in slices:
            # `first` and `stop` count from the part's first column.
            start_of_part = starts[indices[member]]
            order += range(start_of_part + first, start_of_part + stop)
    return groups, order


def _family_of(part: Member) -> tuple[Any, bool] | None:
    """Return a key that parts have in common if one distribution can join them, or None."""
    cls, options = unbind(part.dist)
    # The user's class or function may not derive from ActionDistribution.
    if not hasattr(cls, "family"):
        return None
    family = cls.family(options)
    if family is None:
        return None
    # Integers and floats are not joined, because flat actions are rounded by group.
    return family, part.is_integer


def _join(members: Sequence[Member]) -> tuple[Member, list[tuple[int, int, int]]]:
    """Return one member that stands for all members of a family, and where its inputs come from.

    The second result lists, in the order of its inputs, from which member and which columns of that
    member's inputs each piece is taken: `(index of the member, first column, stop)`; see
    `ActionDistribution.side_by_side`.
    """
    first = members[0]
    if len(members) == 1:
        all_inputs = (0, 0, first.size)
        return first, [all_inputs]
    cls, _ = unbind(first.dist)
    options_and_sizes = []
    places: list[int] = []
    for member in members:
        _, options = unbind(member.dist)
        options_and_sizes.append((options, member.size))
        places += member.leaf_places
    dist, slices = cls.side_by_side(options_and_sizes)
    joint = Member(
        first.info,
        dist,
        size=sum(_sizes(members)),
        mask_width=sum(_mask_widths(members)),
        leaves=tuple(_all_leaves(members)),
        leaf_places=tuple(places),
    )
    return joint, slices
