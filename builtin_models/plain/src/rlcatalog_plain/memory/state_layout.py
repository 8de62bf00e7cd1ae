"""Structure of a module's state, and its form as vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import Tensor, TensorOps, TensorTree


class StateLeaf(NamedTuple):
    """One tensor of a state.

    Attributes:
        place: Where it is in the state, such as `"['h'][0]"`; empty for a state of one tensor.
        shape: Its shape for one row.
        dtype: Its dtype, one of the framework's.
    """

    place: str
    shape: tuple[int, ...]
    dtype: Any


class StateLayout:
    """Structure of a module's state: a tensor, or dicts, lists and tuples of tensors.

    A policy keeps each tensor as a vector `[B, n]`, because Stable-Baselines3's RecurrentPPO stores
    vectors only.

    Args:
        state: A state, whose tensors have a row per episode.
        ops: The operations of its framework.

    Attributes:
        leaves: Its tensors, in order.
    """

    def __init__(self, state: TensorTree, ops: TensorOps) -> None:
        self._structure = _map_tree(state, _describe_tensor)
        self._ops = ops
        self.leaves: list[StateLeaf] = []
        for place, leaf in walk(self._structure):
            self.leaves.append(leaf._replace(place=place))

    def tensors(self, state: TensorTree) -> list[Any]:
        """Return a state's tensors `[B, ...]`, in the order of `leaves`.

        Raises:
            ModelContractError: The state has another structure.
        """
        tensors = [tensor for _, tensor in walk(state, like=self._structure)]
        if len(tensors) != len(self.leaves):
            raise ModelContractError(
                f"memory: expected a state of {len(self.leaves)} tensors, found {len(tensors)}."
            )
        return tensors

    def vectors(self, state: TensorTree) -> list[Any]:
        """Return a state's tensors as vectors `[B, n]`."""
        return [self._ops.flat(tensor) for tensor in self.tensors(state)]

    def state(self, tensors: Sequence[Tensor]) -> Any:
        """Return the state that has these tensors."""
        remaining = iter(tensors)

        def take_next(_: StateLeaf) -> Any:
            return next(remaining)

        return _map_tree(self._structure, take_next)


def _describe_tensor(tensor: Any) -> StateLeaf:
    return StateLeaf(place="", shape=tuple(tensor.shape[1:]), dtype=tensor.dtype)


def _map_tree(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure with `change` applied to each of its leaves."""
    if isinstance(tree, Mapping):
        return {key: _map_tree(part, change) for key, part in tree.items()}
    if not _is_sequence(tree):
        return change(tree)
    parts = [_map_tree(part, change) for part in tree]
    if isinstance(tree, list):
        return parts
    if type(tree) is tuple:
        return tuple(parts)
    return type(tree)(*parts)  # a named tuple


def walk(tree: Any, place: str = "", like: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the places and leaves of a structure.

    Args:
        tree: The structure.
        place: Where it is in the whole structure.
        like: A structure with the same keys, whose order counts; None takes the tree's.

    Raises:
        ModelContractError: The tree has other keys than `like`.
    """
    if like is None:
        like = tree
    if isinstance(like, Mapping):
        if not isinstance(tree, Mapping) or tree.keys() != like.keys():
            raise _other_structure(place, expected=f"a dict with {list(like)}", tree=tree)
        for key, part in like.items():
            yield from walk(tree[key], f"{place}[{key!r}]", part)
    elif _is_sequence(like):
        if not _is_sequence(tree) or len(tree) != len(like):
            raise _other_structure(place, expected=f"{len(like)} parts", tree=tree)
        for index, part in enumerate(like):
            yield from walk(tree[index], f"{place}[{index}]", part)
    else:
        yield place, tree


def _is_sequence(tree: Any) -> bool:
    """Return whether a part of a state is a list or a tuple; a leaf is a named tuple, too."""
    return isinstance(tree, list | tuple) and not isinstance(tree, StateLeaf)


def _other_structure(place: str, expected: str, tree: Any) -> ModelContractError:
    found = type(tree).__name__
    if isinstance(tree, Mapping):
        found = f"a dict with {list(tree)}"
    return ModelContractError(
        f"memory: state{place} has another structure than initial_state returns: expected"
        f" {expected}, found {found}."
    )
