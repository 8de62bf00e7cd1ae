"""Restoring a space's structure from encoded observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import rlcatalog
from rlcatalog.errors import ObservationError
from rlcatalog.frameworks.ops import Tensor, TensorTree, tensor_ops
from rlcatalog.observations.preprocessor import Preprocessor
from rlcatalog.spaces.info import Space
from rlcatalog.spaces.paths import write_path

if TYPE_CHECKING:
    from rlcatalog.plugins.request import PartsCatalog


def preprocessor_of(obs_space: Space, catalog: PartsCatalog | None = None) -> Preprocessor | None:
    """Return the preprocessor of an encoded space, or None for an environment's space.

    Args:
        obs_space: The space.
        catalog: The catalog to ask if the space has lost its preprocessor; None asks the default
            catalog.
    """
    # Only our encoded spaces have this attribute.
    preprocessor = getattr(obs_space, "preprocessor", None)
    # RLlib's encoded spaces have this one.
    if preprocessor is None and hasattr(obs_space, "original_space"):
        # The space comes from elsewhere, such as another process, without our attribute. The
        # catalog finds the same preprocessor for its original space.
        lookup_catalog = catalog or rlcatalog.default_catalog()
        preprocessor = lookup_catalog.preprocessor_for(obs_space.original_space, {}, check="never")
        obs_space.preprocessor = preprocessor  # type: ignore[attr-defined]
    return preprocessor if isinstance(preprocessor, Preprocessor) else None


def is_structure(obs: TensorTree) -> bool:
    """Return whether observations are structured, instead of one array or tensor."""
    return isinstance(obs, Mapping | tuple | list) or is_dataclass(obs)


def restore_original_dimensions(obs: TensorTree, obs_space: Space, tensorlib: str = "numpy") -> Any:
    """Convert encoded observations back into the structure of their space.

    Args:
        obs: Encoded observations `[..., size]`; a structure is returned unchanged.
        obs_space: The preprocessor's `observation_space`. Without `original_space`, `obs` is
            returned unchanged.
        tensorlib: `"numpy"`, `"torch"` or `"tf"` (`"tf2"`).

    Returns:
        Dicts for Dict, tuples for Tuple, `RepeatedValues` for Repeated and Sequence, `TextValues`,
        `GraphValues` and `OneOfValues`. Leaves are arrays or tensors, and are views of `obs` if the
        library has views. Discrete leaves stay one-hot.

    Raises:
        ObservationError: The last axis of `obs` does not have the encoded size.
    """
    preprocessor = preprocessor_of(obs_space)
    if preprocessor is None or not preprocessor.structured or is_structure(obs):
        return obs
    encoded = cast("Tensor", obs)
    shape = tuple(encoded.shape)
    if len(shape) < 2 or shape[-1] != preprocessor.size:
        raise ObservationError(
            f"{preprocessor.info.path}: expected encoded observations of shape [...,"
            f" {preprocessor.size}] for {preprocessor.info.describe()}, found shape"
            f" {shape}."
        )
    return preprocessor.restore(encoded, tensor_ops(tensorlib))


def model_views(
    preprocessor: Preprocessor, dtype: np.dtype[Any]
) -> list[tuple[str, tuple[int, ...], str]]:
    """Return the entries of a model's input: name, shape without the batch axis, dtype.

    Args:
        preprocessor: The preprocessor of the observations.
        dtype: Dtype of the encoded observations.
    """
    encoded = np.zeros((1, *preprocessor.shape), dtype)
    obs = encoded
    if preprocessor.structured:
        obs = preprocessor.restore(encoded, tensor_ops("numpy"))
    tensors = [*_tensors("obs", obs), ("obs_flat", encoded.reshape(1, -1))]
    return [(name, tensor.shape[1:], str(tensor.dtype)) for name, tensor in tensors]


def _tensors(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a structure with their names in Python syntax."""
    parts: dict[str, Any] = {}
    if isinstance(values, Mapping):
        parts = {write_path([key], name): value for key, value in values.items()}
    elif isinstance(values, tuple):
        parts = {write_path([i], name): value for i, value in enumerate(values)}
    elif is_dataclass(values):
        # RepeatedValues' max_len is a number, not a tensor.
        tensors = {key: value for key, value in vars(values).items() if key != "max_len"}
        parts = {f"{name}.{key}": value for key, value in tensors.items()}
    elif values is not None:
        yield name, values
    for part_name, part in parts.items():
        yield from _tensors(part_name, part)
