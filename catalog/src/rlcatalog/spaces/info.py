"""A Gymnasium space, read once into a frozen tree without any framework in it.

Matching, explaining, config checks and codec plans all read this tree, so that no plugin has to import gymnasium to
answer a question about a space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import UnsupportedSpaceError

if TYPE_CHECKING:
    import gymnasium
    import numpy as np

#: Qualified class names of the spaces whose structure the kernel reads itself; any other class is its own kind.
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


@dataclass(frozen=True, eq=False)
class SpaceInfo:
    """One node of a space.

    Attributes:
        kind: `"box"`, `"discrete"`, …; for a class the kernel does not know, its qualified name.
        path: Where the node stands, as one would type it: `obs['camera'][0]`.
        shape: The space's own shape, or None where it has none (Dict, Tuple, Text, …).
        dtype: NumPy name of the dtype, or None.
        low: Lower bounds (Box), an array of `shape`.
        high: Upper bounds (Box), an array of `shape`.
        n: Number of values (Discrete).
        start: Smallest value (Discrete) or values (MultiDiscrete).
        nvec: Numbers of values (MultiDiscrete), an array of `shape`.
        keys: Names of the children (Dict), in the space's order.
        children: Child nodes, in the space's order.
        classes: Qualified names of the space's class and its bases, most derived first.
        space: The space that was read, for codecs of kinds with attributes of their own.
    """

    kind: str
    path: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    low: np.ndarray[Any, Any] | None = field(default=None, repr=False)
    high: np.ndarray[Any, Any] | None = field(default=None, repr=False)
    n: int | None = None
    start: Any = 0
    nvec: np.ndarray[Any, Any] | None = field(default=None, repr=False)
    keys: tuple[str, ...] = ()
    children: tuple[SpaceInfo, ...] = ()
    classes: tuple[str, ...] = field(default=(), repr=False)
    space: Any = field(default=None, repr=False)

    @classmethod
    def read(cls, space: gymnasium.Space[Any], path: str = "obs") -> SpaceInfo:
        """Read `space`, and its children, into a tree.

        Args:
            space: Any Gymnasium space.
            path: The root's path, `"obs"` or `"action"`.

        Raises:
            UnsupportedSpaceError: `space` is not a Gymnasium space.
        """
        classes = tuple(f"{c.__module__}.{c.__qualname__}" for c in type(space).__mro__)
        if "gymnasium.spaces.space.Space" not in classes:
            raise UnsupportedSpaceError(
                f"{path}: expected a gymnasium.Space, found {space!r}"
                f" ({type(space).__module__}.{type(space).__name__}). Pass env.observation_space or env.action_space;"
                " spaces of the old 'gym' package must be rebuilt with gymnasium.spaces."
            )
        # The class itself decides, not a base: a subclass of Box with a meaning of its own may have its own codec and
        # still falls back to Box's (see `is_a`).
        kind = next((KINDS[name] for name in classes if name in KINDS), classes[0])
        shape = space.shape
        common: dict[str, Any] = {
            "kind": kind,
            "path": path,
            "shape": tuple(int(n) for n in shape) if shape is not None else None,
            "dtype": str(space.dtype) if space.dtype is not None else None,
            "classes": classes,
            "space": space,
        }
        raw: Any = space
        if kind == "box":
            common.update(low=raw.low, high=raw.high)
        elif kind == "discrete":
            common.update(n=int(raw.n), start=int(raw.start))
        elif kind == "multi_discrete":
            common.update(nvec=raw.nvec, start=raw.start)
        elif kind == "dict":
            keys = tuple(raw.spaces)
            common.update(
                keys=keys,
                children=tuple(cls.read(raw.spaces[key], f"{path}[{key!r}]") for key in keys),
            )
        elif kind in ("tuple", "oneof"):
            common.update(children=tuple(cls.read(child, f"{path}[{i}]") for i, child in enumerate(raw.spaces)))
        elif kind == "sequence":
            common.update(children=(cls.read(raw.feature_space, f"{path}[:]"),))
        elif kind == "repeated":
            common.update(children=(cls.read(raw.child_space, f"{path}[:]"),), n=int(raw.max_len))
        return cls(**common)

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None for a space without a shape."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether the shape has no room for a value."""
        return self.shape is not None and 0 in self.shape

    def without_values(self, name: str) -> UnsupportedSpaceError:
        """Return the error of a distribution that cannot serve an action space without a single value."""
        return UnsupportedSpaceError(
            f"{self.path}: {self.describe()} holds no values, so that {name} has nothing to choose. Leave it out of the"
            " action space, and put it back in an environment wrapper (gymnasium.wrappers.TransformAction)."
        )

    @property
    def is_image(self) -> bool:
        """Whether this is a Box of rank 3 (RLlib's rule for what a vision net takes)."""
        return self.kind == "box" and self.rank == 3

    def is_a(self, qualified_name: str) -> bool:
        """Whether the space is of the class with this qualified name (`"package.module.Class"`), or of a subclass."""
        return qualified_name in self.classes

    def without(self, key: str) -> SpaceInfo:
        """Return a Dict without one of its keys."""
        from gymnasium.spaces import Dict

        kept = [(name, child) for name, child in zip(self.keys, self.children, strict=True) if name != key]
        return replace(
            self,
            keys=tuple(name for name, _ in kept),
            children=tuple(child for _, child in kept),
            space=Dict([(name, child.space) for name, child in kept]),
        )

    def walk(self) -> Iterator[SpaceInfo]:
        """Yield this node and all below it, depth first, in the space's order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def describe(self) -> str:
        """Return a short text for tables and messages, such as `Box(84, 84, 4) uint8`."""
        if self.kind == "box":
            return f"Box{self.shape} {self.dtype}"
        if self.kind == "discrete":
            return f"Discrete({self.n}{f', start={self.start}' if self.start else ''})"
        if self.kind == "multi_discrete":
            assert self.nvec is not None
            return f"MultiDiscrete({self.nvec.tolist()})"
        if self.kind == "dict":
            return f"Dict({', '.join(f'{k}: {c.describe()}' for k, c in zip(self.keys, self.children, strict=True))})"
        if self.kind == "repeated":
            return f"Repeated({self.children[0].describe()}, {self.n})"
        if self.kind == "text":
            text = self.space
            return f"Text({text.min_length} to {text.max_length} of {len(text.character_set)} characters)"
        if self.kind == "oneof":
            return f"OneOf({', '.join(child.describe() for child in self.children)})"
        if self.children:
            return f"{self.kind.capitalize()}({', '.join(child.describe() for child in self.children)})"
        return repr(self.space)
