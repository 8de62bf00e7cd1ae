"""Kernel functions with RLlib's signatures, which use different framework names."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcatalog import restore_original_dimensions as _restore
from rlcatalog.frameworks import frameworks, ops_of, tensor_ops
from rlcatalog_compat.spaces import leaves


def restore_original_dimensions(obs: Any, obs_space: Any, tensorlib: Any = None) -> Any:
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
        name = tensorlib.__name__.partition(".")[0]
        tensorlib = "tf" if name == "tensorflow" else name
    return _restore(obs, obs_space, tensorlib)


def flatten(obs: Any, framework: str | None = None) -> Any:
    """Flatten observations `[B, ...]` to `[B, n]`.

    Args:
        obs: A tensor.
        framework: Accepted for RLlib's signature; the tensor determines the framework.
    """
    return ops_of(obs).flat(obs)


def add_time_dimension(
    padded_inputs: Any,
    seq_lens: Any = None,
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
            steps = max_seq_len or len(padded_inputs) // max(len(seq_lens), 1)
            rows = padded_inputs.reshape(-1, steps, *padded_inputs.shape[1:])
            return rows.swapaxes(0, 1) if time_major else rows
        padded_inputs = tensor_ops("torch" if framework == "torch" else "tf").tensor(padded_inputs)
    if max_seq_len is not None and not time_major:
        return ops_of(padded_inputs).rows(padded_inputs, (max_seq_len, *padded_inputs.shape[1:]))
    add = frameworks()[_library_of(padded_inputs)].load("add_time_dimension")
    # It only counts sequences.
    return add(
        padded_inputs,
        seq_lens if max_seq_len is None else padded_inputs[::max_seq_len],
        time_major=time_major,
    )


def _library_of(obs: Any) -> str:
    return ops_of(next(leaves(obs))).framework
