"""Functions for nested spaces and values, like RLlib's `space_utils`; Dict keys are sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, Space, Tuple

from rlcatalog.errors import ObservationError, UnsupportedSpaceError
from rlcatalog.frameworks import Array, TensorTree

#: A space, or a structure of spaces as `get_base_struct_from_space` returns it.
SpaceTree: TypeAlias = "Space[Any] | Mapping[str, SpaceTree] | tuple[SpaceTree, ...]"


def get_base_struct_from_space(space: Space[Any]) -> Any:
    """Return a space's tree: dicts for Dict, tuples for Tuple, spaces at the leaves."""
    if isinstance(space, Dict):
        return {key: get_base_struct_from_space(child) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(get_base_struct_from_space(child) for child in space.spaces)
    return space


def flatten_space(space: Space[Any]) -> list[Space[Any]]:
    """Return a space's leaves from left to right."""
    return list(leaves(get_base_struct_from_space(space)))


def get_original_space(space: Space[Any]) -> Space[Any]:
    """Return the original space behind an encoded space; return other spaces unchanged."""
    # The preprocessors set this attribute on the spaces of their encoded observations.
    return getattr(space, "original_space", space)


def leaves(struct: Any) -> Iterator[Any]:
    """Yield the leaves of dicts (in the order of their sorted keys), lists and tuples from left to
    right.
    """
    if isinstance(struct, dict):
        for key in sorted(struct):
            yield from leaves(struct[key])
    elif isinstance(struct, list | tuple):
        for item in struct:
            yield from leaves(item)
    else:
        yield struct


def flatten_to_single_ndarray(input_: TensorTree) -> Array:
    """Flatten the leaves of a structure into one vector."""
    if not isinstance(input_, dict | list | tuple):
        return np.asarray(input_)
    return np.concatenate([np.reshape(leaf, -1) for leaf in leaves(input_)])


def unbatch(batches_struct: TensorTree) -> list[Any]:
    """Split a structure of batches into a list of structures, one per row."""
    num_rows = len(next(leaves(batches_struct)))
    return [map_leaves(itemgetter(row), batches_struct) for row in range(num_rows)]


def batch(list_of_structs: list[Any], individual_items_already_have_batch_1: bool = False) -> Any:
    """Stack several structures into one structure of batches.

    Args:
        list_of_structs: One structure per row.
        individual_items_already_have_batch_1: Whether each structure already has a batch axis.
    """
    join = np.concatenate if individual_items_already_have_batch_1 else np.stack
    return map_leaves(lambda *rows: join(rows), *list_of_structs)


def convert_element_to_space_type(element: Any, sampled_element: Any) -> Any:
    """Convert a value to the dtypes of a sample from its space.

    Args:
        element: A value, or a structure of values.
        sampled_element: A sample from the space, with the same structure.

    Raises:
        ObservationError: The value is a number, but the sample is an array that has axes.
    """
    return map_leaves(_like, element, sampled_element)


def _like(value: Any, sample: Any) -> Any:
    """Return a leaf with the dtype of the sample; see `convert_element_to_space_type`."""
    if isinstance(sample, np.ndarray):
        if sample.ndim and not isinstance(value, np.ndarray):
            raise ObservationError(f"expected an array of shape {sample.shape}, found {value!r}.")
        return np.asarray(value, sample.dtype)
    is_whole_float = isinstance(value, float | np.floating) and float(value).is_integer()
    if isinstance(sample, int | np.integer) and is_whole_float:
        return type(sample)(value)
    return value


class FlexDict(Dict):
    """Dict space whose keys can be set later, `space["key"] = Box(...)`; keys keep their insertion
    order.

    Args:
        spaces: Key → space; also accepted as keyword arguments.
    """

    def __setitem__(self, key: str, value: Space[Any]) -> None:
        if not isinstance(value, Space):
            raise UnsupportedSpaceError(f"FlexDict[{key!r}]: expected a space, found {value!r}.")
        self.spaces[key] = value


def one_hot_widths(space: Space[Any]) -> list[int]:
    """Return the number of choices in each part of a Discrete or MultiDiscrete.

    Raises:
        UnsupportedSpaceError: The space is neither a Discrete nor a MultiDiscrete.
    """
    if isinstance(space, Discrete):
        return [int(space.n)]
    if not isinstance(space, MultiDiscrete):
        raise UnsupportedSpaceError(
            f"one_hot: expected a Discrete or MultiDiscrete, found {space}."
        )
    return [int(n) for n in np.ravel(space.nvec)]


def leaves_in(struct: Any, spaces_struct: SpaceTree | None) -> Iterator[tuple[Any, Any]]:
    """Yield the leaves of a structure with their spaces, or with None if no spaces are given."""
    values = list(leaves(struct))
    spaces: Iterable[Space[Any] | None]
    if spaces_struct is None:
        spaces = repeat(None, len(values))
    else:
        spaces = leaves(spaces_struct)
    return zip(values, spaces, strict=True)


def map_leaves(
    function: Callable[..., Any],
    struct: Any,
    *others: Any,
    kinds: type | tuple[type, ...] = (list, tuple),
) -> Any:
    """Apply a function to each leaf of a structure, in the order of `leaves`.

    Args:
        function: Takes a leaf of `struct` and the corresponding leaf of each further structure.
        struct: A structure of dicts, lists and tuples.
        *others: Further structures of the same form.
        kinds: Types that count as nested structures, in addition to dicts.
    """
    structs = (struct, *others)
    if isinstance(struct, dict):
        values_by_key = {}
        for key in sorted(struct):
            children = [structure[key] for structure in structs]
            values_by_key[key] = map_leaves(function, *children, kinds=kinds)
        # The function is called in the order of `leaves`, but the result keeps its own order.
        return {key: values_by_key[key] for key in struct}
    if isinstance(struct, kinds):
        items = [
            map_leaves(function, *children, kinds=kinds) for children in zip(*structs, strict=True)
        ]
        if isinstance(struct, tuple):
            return tuple(items)
        return items
    return function(*structs)
