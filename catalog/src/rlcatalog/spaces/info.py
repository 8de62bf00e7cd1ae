"""A Gymnasium space, read into a frozen, framework-free tree.

Matching, explaining, config checks and codec plans all read this tree. It lets plugins inspect a
space without importing gymnasium.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.spaces.paths import write_path

if TYPE_CHECKING:
    import gymnasium
    import gymnasium.spaces

    from rlcatalog.frameworks.ops import Array
    from rlcatalog.spaces.extra import Repeated

#: A Gymnasium space; the kernel does not import Gymnasium only for this type.
Space: TypeAlias = "gymnasium.Space[Any]"

#: Qualified class names of the spaces, including subclasses, whose structure the kernel reads. For
#: any other class, the qualified name is the kind.
KINDS = {
    "gymnasium.spaces.box.Box": "box",
    "gymnasium.spaces.discrete.Discrete": "discrete",
    "gymnasium.spaces.multi_discrete.MultiDiscrete": "multi_discrete",
    "gymnasium.spaces.multi_binary.MultiBinary": "multi_binary",
    "gymnasium.spaces.text.Text": "text",
    "gymnasium.spaces.sequence.Sequence": "sequence",
    "gymnasium.spaces.graph.Graph": "graph",
    "gymnasium.spaces.oneof.OneOf": "oneof",
    "gymnasium.spaces.tuple.Tuple": "tuple",
    "gymnasium.spaces.dict.Dict": "dict",
    "rlcatalog.spaces.Repeated": "repeated",
    "rlcatalog.spaces.Simplex": "simplex",
}

#: The place of an object in memory, which some spaces show, and which differs in each process.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
#: Largest number of values of a MultiDiscrete that its short text lists.
_MOST_NUMBERS_SHOWN = 16


class SpaceInfo(msgspec.Struct, frozen=True, eq=False):
    """One node in a space's tree.

    Attributes:
        kind: `"box"`, `"discrete"`, …; for an unknown class, its qualified name.
        path: Path of the node in Python syntax, such as `obs['camera'][0]`.
        shape: Shape of the space, or None if it has none (Dict, Tuple, Text, …).
        dtype: NumPy name of the dtype, or None.
        low: Lower bounds (Box), an array of `shape`; None for other kinds, as below.
        high: Upper bounds (Box), an array of `shape`.
        n: Number of values (Discrete).
        start: Smallest value (Discrete) or smallest values (MultiDiscrete).
        nvec: Numbers of values (MultiDiscrete), an array of `shape`.
        keys: Keys of the children (Dict), in the space's order.
        children: Child nodes, in the space's order.
        classes: Qualified names of the space's class and its bases, most derived first.
        space: The space that was read, for codecs that need its additional attributes.
        choice: For a OneOf, the choice of a child, as a Discrete; None for other kinds.
    """

    kind: str
    path: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    low: Any = None
    high: Any = None
    n: int | None = None
    start: Any = 0
    nvec: Any = None
    keys: tuple[str, ...] = ()
    children: tuple[SpaceInfo, ...] = ()
    classes: tuple[str, ...] = ()
    space: Any = None
    choice: SpaceInfo | None = None

    @classmethod
    def read(cls, space: Space, path: str = "obs") -> SpaceInfo:
        """Read `space`, and its children, into a tree.

        Args:
            space: Any Gymnasium space.
            path: The root's path, `"obs"` or `"action"`.

        Raises:
            UnsupportedSpaceError: `space` is not a Gymnasium space.
        """
        # A cached function, so mypy asks for a hash; it takes the class for one of its instances,
        # which have none.
        classes, kind = _classes_and_kind(type(space))  # type: ignore[arg-type]
        if "gymnasium.spaces.space.Space" not in classes:
            raise UnsupportedSpaceError(
                f"{path}: expected a gymnasium.Space, found {space!r}"
                f" ({type(space).__module__}.{type(space).__name__}). Pass env.observation_space"
                " or env.action_space; spaces of the old 'gym' package must be rebuilt with"
                " gymnasium.spaces."
            )
        shape = None if space.shape is None else tuple(map(int, space.shape))
        dtype = None if space.dtype is None else _dtype_name(space.dtype)
        fields = {}
        if kind in _FIELDS:
            fields = _FIELDS[kind](space)
        children = []
        if kind in _CHILDREN:
            for path_suffix, child in _CHILDREN[kind](space).items():
                children.append(cls.read(child, path + path_suffix))
        choice = None
        if kind == "oneof":
            choice = cls.read(_discrete(len(children)), f"{path}.choice")
        return cls(
            kind,
            path,
            shape=shape,
            dtype=dtype,
            children=tuple(children),
            classes=classes,
            space=space,
            choice=choice,
            **fields,
        )

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None for a space without a shape."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether values of this space are empty arrays."""
        return self.shape is not None and 0 in self.shape

    def error_without_values(self, name: str) -> UnsupportedSpaceError:
        """Return the error for an action space without values."""
        return UnsupportedSpaceError(
            f"{self.path}: {self.describe()} has no values, so {name} has nothing to choose."
            " Remove it from the action space, and add it again in an environment wrapper"
            " (gymnasium.wrappers.TransformAction)."
        )

    @property
    def is_composite(self) -> bool:
        """Whether this is a Tuple or a Dict."""
        return self.kind in ("tuple", "dict")

    @property
    def action_parts(self) -> tuple[SpaceInfo, ...]:
        """The parts of an action, for which distributions and codecs are chosen one by one: the
        children of a Tuple or Dict; the choice and the children of a OneOf; none for other kinds.
        """
        if self.choice is not None:
            return (self.choice, *self.children)
        if self.is_composite:
            return self.children
        return ()

    @property
    def is_integer_box(self) -> bool:
        """Whether this is a Box of integers or bools."""
        return self.kind == "box" and (self.dtype or "").startswith(("int", "uint", "bool"))

    @property
    def is_float_box(self) -> bool:
        """Whether this is a Box of floats."""
        return self.kind == "box" and not self.is_integer_box

    @property
    def consists_of_bounded_boxes(self) -> bool:
        """Whether this is a Box of floats with finite bounds, or a Tuple or Dict of such Boxes."""
        leaves = [space for space in self.walk() if not space.is_composite]
        for leaf in leaves:
            if not leaf.is_float_box:
                return False
            if not np.isfinite(leaf.low).all() or not np.isfinite(leaf.high).all():
                return False
        return bool(leaves)

    def split(self, value: Any) -> list[Any]:
        """Split one Tuple or Dict value, or a batch of them, into its entries, in the space's
        order.
        """
        if self.kind == "dict":
            return [value[key] for key in self.keys]
        return list(value)

    def join(self, parts: Sequence[Any]) -> Any:
        """Return the Tuple or Dict value made of these entries."""
        if self.kind == "dict":
            return dict(zip(self.keys, parts, strict=True))
        return tuple(parts)

    def distance(self, kinds: Sequence[str]) -> int | None:
        """Return how many of the space's classes precede the first of these kinds; None if there is
        no match.
        """
        for count, name in enumerate(self.classes):
            if name in kinds or KINDS.get(name) in kinds:
                return count
        return None

    def without(self, key: str, *inner: str) -> SpaceInfo:
        """Return a Dict without one of its keys.

        Args:
            key: The key.
            *inner: Further keys of a path. In that case, the entry inside the Dict at `key` is
                removed, along with any Dict that becomes empty.
        """
        from gymnasium.spaces import Dict

        entries = dict(zip(self.keys, self.children, strict=True))
        entry = entries[key].without(*inner) if inner else None
        if entry is not None and entry.keys:
            entries[key] = entry
        else:
            del entries[key]
        space = Dict([(name, child.space) for name, child in entries.items()])
        return msgspec.structs.replace(
            self, keys=tuple(entries), children=tuple(entries.values()), space=space
        )

    def __repr__(self) -> str:
        return f"SpaceInfo({self.path}: {self.describe()})"

    def walk(self) -> Iterator[SpaceInfo]:
        """Yield this node and all nodes below it, depth first, in the space's order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def describe(self) -> str:
        """Return a short description for tables and messages, such as `Box(84, 84, 4) uint8`."""
        if self.kind in _DESCRIBERS:
            return _DESCRIBERS[self.kind](self)
        if not self.children:
            return _ADDRESS.sub("", repr(self.space))
        texts = [child.describe() for child in self.children]
        if self.keys:
            texts = [f"{key}: {text}" for key, text in zip(self.keys, texts, strict=True)]
        name = "OneOf" if self.kind == "oneof" else self.kind.capitalize()
        return f"{name}({', '.join(texts)})"


@lru_cache(maxsize=256)
def _classes_and_kind(space_class: type) -> tuple[tuple[str, ...], str]:
    """Return the qualified names of a space's class and of its bases, and the kind of space it is.

    The nearest class that the kernel knows determines the kind: a subclass of Box is a `"box"`.
    Codecs for the subclass are found by its class name.
    """
    classes = tuple(f"{base.__module__}.{base.__qualname__}" for base in space_class.__mro__)
    for name in classes:
        if name in KINDS:
            return classes, KINDS[name]
    return classes, classes[0]


#: Name of a dtype; NumPy computes it anew each time, which takes longer than reading the rest of a
#: space.
_dtype_name = lru_cache(maxsize=256)(str)


def _discrete(count: int) -> gymnasium.spaces.Discrete:
    """Return the space of a choice between so many values."""
    from gymnasium.spaces import Discrete

    return Discrete(count)


def _read_only(array: Array) -> Array:
    # Plugins get the space, but must not modify it.
    view = array.view()
    view.flags.writeable = False
    return view


def _box_fields(space: gymnasium.spaces.Box) -> dict[str, Any]:
    return {"low": _read_only(space.low), "high": _read_only(space.high)}


def _discrete_fields(space: gymnasium.spaces.Discrete) -> dict[str, Any]:
    return {"n": int(space.n), "start": int(space.start)}


def _multi_discrete_fields(space: gymnasium.spaces.MultiDiscrete) -> dict[str, Any]:
    return {"nvec": _read_only(space.nvec), "start": space.start}


def _dict_fields(space: gymnasium.spaces.Dict) -> dict[str, Any]:
    return {"keys": tuple(space.spaces)}


def _repeated_fields(space: Repeated) -> dict[str, Any]:
    return {"n": int(space.max_len)}


#: Kind → function that returns the values of `SpaceInfo`'s fields that only this kind has.
_FIELDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "box": _box_fields,
    "discrete": _discrete_fields,
    "multi_discrete": _multi_discrete_fields,
    "dict": _dict_fields,
    "repeated": _repeated_fields,
}


def _spaces_by_key(space: gymnasium.spaces.Dict) -> dict[str, Space]:
    return {write_path([key], root=""): child for key, child in space.spaces.items()}


def _spaces_by_place(
    space: gymnasium.spaces.Tuple[Any] | gymnasium.spaces.OneOf[Any],
) -> dict[str, Space]:
    return {write_path([i], root=""): child for i, child in enumerate(space.spaces)}


def _space_of_items(space: gymnasium.spaces.Sequence) -> dict[str, Space]:
    return {"[:]": space.feature_space}


def _space_of_repeated_items(space: Repeated) -> dict[str, Space]:
    return {"[:]": space.child_space}


#: Kind → function that returns the spaces inside a space, by what their paths add to its path.
_CHILDREN: dict[str, Callable[[Any], dict[str, Space]]] = {
    "dict": _spaces_by_key,
    "tuple": _spaces_by_place,
    "oneof": _spaces_by_place,
    "sequence": _space_of_items,
    "repeated": _space_of_repeated_items,
}


def _describe_box(info: SpaceInfo) -> str:
    return f"Box{info.shape} {info.dtype}"


def _describe_discrete(info: SpaceInfo) -> str:
    if info.start:
        return f"Discrete({info.n}, start={info.start})"
    return f"Discrete({info.n})"


def _describe_multi_discrete(info: SpaceInfo) -> str:
    nvec = info.space.nvec
    if nvec.size <= _MOST_NUMBERS_SHOWN:
        return f"MultiDiscrete({nvec.tolist()})"
    fewest = int(nvec.min())
    most = int(nvec.max())
    counts = str(most) if fewest == most else f"{fewest} to {most}"
    return f"MultiDiscrete{nvec.shape} of {counts}"


def _describe_repeated(info: SpaceInfo) -> str:
    return f"Repeated({info.children[0].describe()}, {info.n})"


def _describe_text(info: SpaceInfo) -> str:
    text = info.space
    return f"Text({text.min_length} to {text.max_length} of {len(text.character_set)} characters)"


#: Kind → function that returns its short text.
_DESCRIBERS: dict[str, Callable[[SpaceInfo], str]] = {
    "box": _describe_box,
    "discrete": _describe_discrete,
    "multi_discrete": _describe_multi_discrete,
    "repeated": _describe_repeated,
    "text": _describe_text,
}
