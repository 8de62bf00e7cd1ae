"""A Gymnasium space, read into a frozen, framework-free tree.

Matching, explaining, config checks and codec plans all read this tree. It lets plugins inspect a
space without importing gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from rlcatalog.errors import UnsupportedSpaceError

if TYPE_CHECKING:
    import gymnasium
    import numpy as np

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

    @classmethod
    def read(cls, space: Space, path: str = "obs") -> SpaceInfo:
        """Read `space`, and its children, into a tree.

        Args:
            space: Any Gymnasium space.
            path: The root's path, `"obs"` or `"action"`.

        Raises:
            UnsupportedSpaceError: `space` is not a Gymnasium space.
        """
        classes, kind = _classes_and_kind(type(space))  # type: ignore[arg-type]  # mypy looks for an instance's hash
        if "gymnasium.spaces.space.Space" not in classes:
            raise UnsupportedSpaceError(
                f"{path}: expected a gymnasium.Space, found {space!r}"
                f" ({type(space).__module__}.{type(space).__name__}). Pass env.observation_space"
                " or env.action_space; spaces of the old 'gym' package must be rebuilt with"
                " gymnasium.spaces."
            )
        return cls(
            kind,
            path,
            shape=tuple(map(int, space.shape)) if space.shape is not None else None,
            dtype=_dtype_name(space.dtype) if space.dtype is not None else None,
            classes=classes,
            space=space,
            **(_READERS[kind](space, path) if kind in _READERS else {}),
        )

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None for a space without a shape."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether values of this space are empty arrays."""
        return self.shape is not None and 0 in self.shape

    def without_values(self, name: str) -> UnsupportedSpaceError:
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
    def is_integer_box(self) -> bool:
        """Whether this is a Box of integers or bools."""
        return self.kind == "box" and (self.dtype or "").startswith(("int", "uint", "bool"))

    def split(self, value: Any) -> list[Any]:
        """Split one Tuple or Dict value, or a batch of them, into its entries, in the space's
        order.
        """
        return [value[key] for key in self.keys] if self.kind == "dict" else list(value)

    def join(self, parts: Sequence[Any]) -> Any:
        """Return the Tuple or Dict value made of these entries."""
        return dict(zip(self.keys, parts, strict=True)) if self.kind == "dict" else tuple(parts)

    def distance(self, kinds: Sequence[str]) -> int | None:
        """Return how many of the space's classes precede the first of these kinds; None if there is
        no match.
        """
        for i, name in enumerate(self.classes):
            if name in kinds or KINDS.get(name) in kinds:
                return i
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
        if inner:
            entries[key] = entries[key].without(*inner)
        if not inner or not entries[key].keys:
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
        if (describe := _DESCRIBERS.get(self.kind)) is not None:
            return describe(self)
        if not self.children:
            return repr(self.space)
        names = [f"{key}: " for key in self.keys] or [""] * len(self.children)
        parts = [name + child.describe() for name, child in zip(names, self.children, strict=True)]
        return f"{'OneOf' if self.kind == 'oneof' else self.kind.capitalize()}({', '.join(parts)})"


@lru_cache(maxsize=256)
def _classes_and_kind(space: type) -> tuple[tuple[str, ...], str]:
    """Return the qualified names of a space's class and of its bases, and the kind of space it is.

    The nearest class that the kernel knows determines the kind: a subclass of Box is a `"box"`.
    Codecs for the subclass are found by its class name.
    """
    classes = tuple(f"{c.__module__}.{c.__qualname__}" for c in space.__mro__)
    return classes, next((KINDS[name] for name in classes if name in KINDS), classes[0])


#: Name of a dtype; NumPy computes it anew each time, which takes longer than reading the rest of a
#: space.
_dtype_name = lru_cache(maxsize=256)(str)


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()  # plugins get the space, but must not modify it
    view.flags.writeable = False
    return view


#: Kind → function that reads the additional fields of a space at a path.
_READERS: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "box": lambda space, path: {"low": _read_only(space.low), "high": _read_only(space.high)},
    "discrete": lambda space, path: {"n": int(space.n), "start": int(space.start)},
    "multi_discrete": lambda space, path: {"nvec": _read_only(space.nvec), "start": space.start},
    "dict": lambda space, path: {
        "keys": tuple(space.spaces),
        "children": tuple(
            SpaceInfo.read(child, f"{path}[{key!r}]") for key, child in space.spaces.items()
        ),
    },
    **dict.fromkeys(
        ("tuple", "oneof"),
        lambda space, path: {
            "children": tuple(SpaceInfo.read(c, f"{path}[{i}]") for i, c in enumerate(space.spaces))
        },
    ),
    "sequence": lambda space, path: {
        "children": (SpaceInfo.read(space.feature_space, f"{path}[:]"),)
    },
    "repeated": lambda space, path: {
        "children": (SpaceInfo.read(space.child_space, f"{path}[:]"),),
        "n": int(space.max_len),
    },
}


#: Kind → function that returns its short text.
_DESCRIBERS: dict[str, Callable[[SpaceInfo], str]] = {
    "box": lambda info: f"Box{info.shape} {info.dtype}",
    "discrete": lambda info: f"Discrete({info.n}{f', start={info.start}' if info.start else ''})",
    "multi_discrete": lambda info: f"MultiDiscrete({info.space.nvec.tolist()})",
    "repeated": lambda info: f"Repeated({info.children[0].describe()}, {info.n})",
    "text": lambda info: (
        f"Text({info.space.min_length} to {info.space.max_length} of"
        f" {len(info.space.character_set)} characters)"
    ),
}
