"""Encoder for observations that are tensors: it computes what `Encoder` computes for arrays, on the
tensors' device and without reading a number.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import NotServedError, ObservationError, shown
from rlcatalog.frameworks import Array, TensorOps, ops_of
from rlcatalog.internals import encode_inputs, exported_dtype, observation_inputs
from rlcatalog.observations import Preprocessor
from rlcatalog_policy.tensor_checks import Check

if TYPE_CHECKING:
    from rlcatalog_policy.encoder import Batch


def are_tensors(values: Any) -> bool:
    """Return whether observations, or other values, are tensors, judging by the first leaf of a
    structure.

    A list is a list of single observations, which become arrays.
    """
    # Each step asks this first: comparing types is faster than `isinstance`.
    leaf_type = type(values)
    if leaf_type is np.ndarray or leaf_type is list:
        return False
    leaf = values
    while leaf_type is dict or isinstance(leaf, tuple | Mapping):
        parts = leaf if isinstance(leaf, tuple) else leaf.values()
        leaf = next(iter(parts), None)
        leaf_type = type(leaf)
    return leaf_type is not np.ndarray and ops_of(leaf).framework != "numpy"


class Placement:
    """The device on which a policy takes tensors.

    It stands for a tensor on the device where an operation needs one, such as
    `TensorOps.constant(value, like)`.

    Args:
        device: The device, as a tensor's attribute `device` names it.
        ops: The operations for its tensors.
    """

    def __init__(self, device: Any, ops: TensorOps) -> None:
        self.device = device
        self.ops = ops

    def check(self, value: Any, name: str) -> Any:
        """Return a value if it is a tensor on this device.

        Raises:
            ObservationError: It is on another device, or no tensor of the policy's framework.
        """
        if ops_of(value) is not self.ops:
            raise ObservationError(
                f"{name}: expected a tensor, like the first entry of the observations; found"
                f" {type(value).__name__} {shown(value, length=80)}."
            )
        if value.device != self.device:
            raise ObservationError(
                f"{name}: expected a tensor on the policy's device, {str(self.device)!r}; found one"
                f" on {str(value.device)!r}, which is not copied for you. Move the policy,"
                f" policy.to({str(value.device)!r}), or the tensor."
            )
        return value


class TensorEncoder:
    """Encoder for the observations of one space that are tensors.

    Args:
        preprocessor: The preprocessor, all of whose codecs must have a tensor form.
        placement: The device.

    Raises:
        NotServedError: A codec has no tensor form.
    """

    def __init__(self, preprocessor: Preprocessor, placement: Placement) -> None:
        self._preprocessor = preprocessor
        self._placement = placement
        self._ops = placement.ops
        self._inputs = list(observation_inputs(preprocessor))
        for part in self._inputs:
            if part.lowered is None:
                raise _no_tensor_form(part.codec)
        self._readers = [_LeafReader(part.codec, placement) for part in self._inputs]
        dtype = preprocessor.observation_space.dtype
        #: The dtype of encoded observations.
        self._dtype = exported_dtype(np.dtype(dtype).name)

    def encode(self, obs: Batch, checks: list[Check]) -> Any:
        """Return encoded observations `[B, *shape]`, which may share memory with the observations.

        Args:
            obs: A batch of tensors in the structure of the space.
            checks: The list to which the checks of their numbers are added.

        Raises:
            ObservationError: The batch has the wrong structure, or a tensor has the wrong shape or
                dtype, or is on another device.
        """
        tensors = list(_tensors_of(self._preprocessor, obs))
        rows = tensors[0].shape[0] if len(tensors[0].shape) else 0
        values = []
        for reader, tensor in zip(self._readers, tensors, strict=True):
            values.append(reader.read(tensor, rows, checks))
        encoded = encode_inputs(self._inputs, values, self._preprocessor, self._ops)
        if self._ops.dtype_name(encoded) == self._dtype:
            return encoded
        converted = self._ops.as_type(encoded, self._dtype)
        if not self._dtype.startswith("float"):
            # An integer out of range has become another one.
            is_right = self._ops.all(converted == encoded)
            checks.append(Check(is_right, self._preprocessor.transform_batch, (encoded,)))
        return converted


class _LeafReader:
    """Reader for one tensor of an observation: its shape, dtype, device and range.

    Args:
        codec: The codec of this part of the observation.
        placement: The device.
    """

    def __init__(self, codec: Preprocessor, placement: Placement) -> None:
        self._codec = codec
        self._placement = placement
        self._ops = placement.ops
        self._shape = tuple(codec.info.shape or ())
        #: The dtypes that were found to be accepted.
        self._accepted_dtypes: set[Any] = set()
        self._range = _range_of(codec)

    def read(self, value: Any, rows: int, checks: list[Check]) -> Any:
        """Return the tensor in the form that the codec's tensor form takes.

        Args:
            value: The tensor.
            rows: Number of rows of the other tensors.
            checks: The list to which the check of its range is added.
        """
        info = self._codec.info
        tensor = self._placement.check(value, info.path)
        shape = tuple(tensor.shape)
        if shape != (rows, *self._shape):
            expected = ", ".join(["B", *map(str, self._shape)])
            raise ObservationError(
                f"{info.path}: expected a tensor of shape [{expected}] with {rows} rows, for a"
                f" batch of {info.describe()}; found shape {shape}."
            )
        if tensor.dtype not in self._accepted_dtypes:
            self._check_dtype(tensor)
            self._accepted_dtypes.add(tensor.dtype)
        name = self._ops.dtype_name(tensor)
        if exported_dtype(name) != name:
            tensor = self._ops.as_type(tensor, exported_dtype(name))
        if self._range is not None:
            low, high = self._range
            is_inside = (tensor >= self._ops.constant(low, tensor)) & (
                tensor <= self._ops.constant(high, tensor)
            )
            checks.append(Check(self._ops.all(is_inside), self._check_rows, (tensor,)))
        return tensor

    def _check_dtype(self, tensor: Any) -> None:
        """Raise an error for a dtype that the codec refuses in an array, such as floats for a
        Discrete.

        The codec is asked: it encodes a value of its space in this dtype.
        """
        codec = self._codec
        name = self._ops.dtype_name(tensor)
        value = codec.info.start
        if self._range is None:
            # A copy, because sampling changes a space's random state.
            value = copy.deepcopy(codec.info.space).sample()
        # NumPy has no bfloat16; all floats are of one kind.
        dtype = "float32" if name == "bfloat16" else name
        try:
            array = np.asarray(value)[None].astype(dtype)
            codec.batch_writer(0)(array, np.zeros((1, codec.size), np.float32))
        except Exception as error:  # a codec may raise anything
            raise ObservationError(
                f"{codec.info.path}: expected a batch of {codec.info.describe()}, found a tensor of"
                f" dtype {name}. Convert the tensor."
            ) from error

    def _check_rows(self, values: Array) -> None:
        """Raise the error for the first row that is outside the codec's space."""
        assert self._range is not None
        low, high = self._range
        is_inside: Array = (values >= low) & (values <= high)
        wrong_rows = np.flatnonzero(~is_inside.reshape(len(values), -1).all(axis=1))
        if not len(wrong_rows):
            return
        row = int(wrong_rows[0])
        try:
            self._codec.check(values[row])
        except ObservationError as error:
            # The same error with a longer message, so its cause stays.
            error.args = (f"row {row} of {len(values)}: {error}",)
            raise


def _range_of(codec: Preprocessor) -> tuple[Array, Array] | None:
    """Return the lowest and the highest integer of a Discrete or MultiDiscrete, int64 arrays of the
    space's shape; None for other spaces.

    Other integers would not raise an error in tensor operations: their one-hot vector is zero.
    """
    info = codec.info
    counts = info.n if info.nvec is None else info.nvec
    if counts is None:
        return None
    low = np.asarray(info.start, np.int64)
    return low, low + np.asarray(counts, np.int64) - 1


def _tensors_of(codec: Preprocessor, obs: Any) -> Iterator[Any]:
    """Yield the tensors of a batch in the order of `observation_inputs`.

    Raises:
        ObservationError: The batch does not have the structure of the space.
    """
    children = codec.side_by_side() if codec.structured else None
    if children is None:
        yield obs
        return
    info = codec.info
    if info.keys:
        expected = f"a dict of tensors with the keys {list(info.keys)}"
        has_structure = isinstance(obs, Mapping) and set(obs.keys()) == set(info.keys)
    else:
        expected = f"a tuple of {len(info.children)} parts"
        has_structure = isinstance(obs, tuple | list) and len(obs) == len(info.children)
    if not has_structure:
        found = f"one with the keys {list(obs.keys())}" if isinstance(obs, Mapping) else shown(obs)
        raise ObservationError(
            f"{info.path}: expected {expected}, for a batch of {info.describe()}; found {found}."
        )
    for step, child in children:
        yield from _tensors_of(child, obs[step])


def _no_tensor_form(codec: Preprocessor) -> NotServedError:
    """Return the error for a codec that does not encode tensors."""
    who = codec.who
    return NotServedError(
        f"{codec.info.path}: {who} has no tensor form, so the policy cannot act on tensors of"
        f" {codec.info.describe()}. Pass arrays."
    )
