"""Kernel functions with RLlib's signatures, which use different framework names."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import Space

from rlcatalog import restore_original_dimensions as _restore
from rlcatalog.frameworks import Array, Tensor, TensorTree, frameworks, ops_of, tensor_ops
from rlcatalog_compat.sequences import Numbers
from rlcatalog_compat.spaces import leaves


def restore_original_dimensions(
    obs: TensorTree, obs_space: Space[Any], tensorlib: str | ModuleType | None = None
) -> Any:
    """Convert encoded observations back to the structure of their original space.

    Args:
        obs: Encoded observations `[..., size]`; a structure is returned unchanged.
        obs_space: The model's observation space.
        tensorlib: `"torch"`, `"tf"`, `"numpy"`, or the library itself. If None, the library of
            `obs`.
    """
    if tensorlib is None:
        tensorlib = _library_of(obs)
    elif not isinstance(tensorlib, str):
        # The module is `torch`, `numpy`, or TensorFlow's, such as `tensorflow.compat.v1`.
        tensorlib = tensorlib.__name__.partition(".")[0]
        if tensorlib == "tensorflow":
            tensorlib = "tf"
    return _restore(obs, obs_space, tensorlib)


def flatten(obs: Tensor, framework: str | None = None) -> Any:  # noqa: ARG001  (RLlib's signature)
    """Flatten observations `[B, ...]` to `[B, n]`.

    Args:
        obs: A tensor.
        framework: Accepted for RLlib's signature; the tensor determines the framework.
    """
    return ops_of(obs).flat(obs)


def add_time_dimension(
    padded_inputs: Tensor,
    seq_lens: Numbers | None = None,
    framework: str | None = None,
    time_major: bool = False,
    *,
    max_seq_len: int | None = None,
) -> Any:
    """Restore the time axis of padded rows.

    Args:
        padded_inputs: `[S * T, ...]`, padded to equal lengths; a NumPy array becomes a tensor only
            if `framework` is `"torch"` or `"tf"`, as in RLlib.
        seq_lens: Lengths `[S]`; or `max_seq_len`.
        framework: `"torch"`, `"tf"` or `"np"` for a NumPy array; a tensor determines its own
            framework.
        time_major: Whether time comes first.
        max_seq_len: The length T, as in RLlib 1's signature.

    Returns:
        `[S, T, ...]`, or `[T, S, ...]`.
    """
    if isinstance(padded_inputs, np.ndarray):
        if framework not in ("torch", "tf", "tf2", "tfe"):
            steps = max_seq_len
            if not steps:
                # Callers that leave out max_seq_len pass the lengths.
                num_sequences = max(len(seq_lens), 1)  # type: ignore[arg-type]
                steps = len(padded_inputs) // num_sequences
            return _add_time_axis_to_array(padded_inputs, steps, time_major)
        library = "torch" if framework == "torch" else "tf"
        padded_inputs = tensor_ops(library).tensor(padded_inputs)
    if max_seq_len is not None and not time_major:
        return ops_of(padded_inputs).rows(padded_inputs, (max_seq_len, *padded_inputs.shape[1:]))
    entry_per_sequence = seq_lens
    if max_seq_len is not None:
        # Of the lengths, the framework's function reads only how many there are. Without lengths,
        # the first row of each sequence serves.
        first_rows = padded_inputs[::max_seq_len]
        entry_per_sequence = first_rows
    add = frameworks()[_library_of(padded_inputs)].load("add_time_dimension")
    return add(padded_inputs, entry_per_sequence, time_major=time_major)


def _add_time_axis_to_array(rows: Array, steps: int, time_major: bool) -> Array:
    """Return an array `[S * T, ...]` as `[S, T, ...]`, or as `[T, S, ...]`."""
    sequences = rows.reshape(-1, steps, *rows.shape[1:])
    if time_major:
        return sequences.swapaxes(0, 1)
    return sequences


def _library_of(obs: TensorTree) -> str:
    """Return the framework of a tensor or of a structure of tensors."""
    first_leaf = next(leaves(obs))
    return ops_of(first_leaf).framework
