"""From encoded observations back to the structure of the space they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ModelContractError, ObservationError
from rlcatalog.preprocessing import Preprocessor
from rlcatalog.spaceinfo import SpaceInfo
from rlcatalog.values import Structure


class TensorOps(NamedTuple):
    """The operations of a tensor library that restoring needs.

    Attributes:
        reshape: `reshape(x, shape)` gives the last axis of x the given shape, as a view where the library can.
        integers: `integers(x)` returns x as int64.
        side_by_side: `side_by_side(list)` joins `[B, n]` arrays along their columns.
    """

    reshape: Callable[[Any, tuple[int, ...]], Any]
    integers: Callable[[Any], Any]
    side_by_side: Callable[[list[Any]], Any]


def preprocessor_of(obs_space: Any) -> Preprocessor | None:
    """Return the preprocessor behind a processed space, or None for a space as environments have it."""
    found = getattr(obs_space, "preprocessor", None)
    if found is None and hasattr(obs_space, "original_space"):
        from rlcatalog.catalog import default_catalog

        # A processed space from elsewhere (another process, RLlib): the default catalog knows its encoding.
        found = default_catalog().preprocessor_for(SpaceInfo.read(obs_space.original_space), {}, check="never")
        obs_space.preprocessor = found
    return found if isinstance(found, Preprocessor) else None


def is_structure(obs: Any) -> bool:
    """Whether observations are structured already, rather than one array or tensor."""
    return isinstance(obs, Mapping | tuple | list | Structure)


def restore_original_dimensions(obs: Any, obs_space: Any, tensorlib: Any = "numpy") -> Any:
    """Turn encoded observations back into the structure of the space they came from.

    Args:
        obs: Encoded observations `[..., size]`; a structure is returned as it is.
        obs_space: The preprocessor's `observation_space`; a space without `original_space` leaves `obs` as it is.
        tensorlib: `"numpy"`, `"torch"` or `"tf"` (`"tf2"`).

    Returns:
        Dicts for Dict, tuples for Tuple, `RepeatedValues` for Repeated and Sequence, `TextValues`, `GraphValues`,
        `OneOfValues`, arrays or tensors at the leaves, views of `obs` where the library can. Discrete leaves stay
        one-hot.

    Raises:
        ObservationError: The last axis of `obs` has not the encoded size.
    """
    preprocessor = preprocessor_of(obs_space)
    if preprocessor is None or not preprocessor.structured or is_structure(obs):
        return obs
    if len(obs.shape) < 2 or obs.shape[-1] != preprocessor.size:
        raise ObservationError(
            f"{preprocessor.info.path}: expected encoded observations of shape [..., {preprocessor.size}] for"
            f" {preprocessor.info.describe()}, found shape {tuple(obs.shape)}."
        )
    return preprocessor.restore(obs, tensor_ops(tensorlib))


def model_views(preprocessor: Preprocessor, dtype: Any) -> list[tuple[str, tuple[int, ...], str]]:
    """Return what a model finds in its input: name, shape without the batch axis, dtype.

    Args:
        preprocessor: The preprocessor of its observations.
        dtype: Dtype of the encoded observations.
    """
    encoded = np.zeros((1, *preprocessor.shape), dtype)
    obs = preprocessor.restore(encoded, tensor_ops("numpy")) if preprocessor.structured else encoded
    found = [*_tensors("obs", obs), ("obs_flat", encoded.reshape(1, -1))]
    return [(name, tensor.shape[1:], str(tensor.dtype)) for name, tensor in found]


def _tensors(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(values, Mapping):
        parts = [(f"{name}[{key!r}]", value) for key, value in values.items()]
    elif isinstance(values, tuple):
        parts = [(f"{name}[{i}]", value) for i, value in enumerate(values)]
    elif isinstance(values, Structure):
        parts = [(f"{name}.{key}", value) for key, value in vars(values).items() if key != "max_len"]
    else:
        if values is not None:
            yield name, values
        return
    for part, value in parts:
        yield from _tensors(part, value)


def tensor_ops(tensorlib: Any) -> TensorOps:
    """Return what restoring needs of a tensor library.

    Raises:
        ModelContractError: The library is not known.
    """
    if tensorlib in ("tf", "tf2"):
        from rlcatalog.tf.ops import integers, reshape_last, side_by_side

        return TensorOps(reshape_last, integers, side_by_side)
    if tensorlib in ("numpy", "torch"):
        return TensorOps(_reshape_last, _integers, _side_by_side)
    raise ModelContractError(f"tensorlib must be 'numpy', 'torch' or 'tf', found {tensorlib!r}.")


def _reshape_last(x: Any, shape: tuple[int, ...]) -> Any:
    if len(shape) == 1:
        return x
    return x.reshape(x.shape[:-1] + shape)


def _side_by_side(pieces: list[Any]) -> Any:
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces, axis=1)
    from rlcatalog.torch.ops import side_by_side

    return side_by_side(pieces)


def _integers(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x.long()
    with np.errstate(invalid="ignore"):  # in a branch of a OneOf that was not taken any values may stand
        return x.astype(np.int64)
