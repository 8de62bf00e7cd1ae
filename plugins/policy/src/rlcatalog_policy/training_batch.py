"""Checks on the batch passed to `Policy.evaluate`: its numbers of rows, stored
actions and masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import ActionError, MissingColumnError, shown
from rlcatalog.frameworks import Array, Tensor
from rlcatalog.internals import NUMBER_KINDS
from rlcatalog_policy.encoder import (
    check_columns,
    check_encoded,
    host_values,
    is_on_other_device,
)
from rlcatalog_policy.non_finite import check_observations
from rlcatalog_policy.tensor_acting import tensor_device

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy


def check_batch(policy: Policy, batch: Mapping[str, Any]) -> None:
    """Raise an error if the data in a training batch cannot have come from acting.

    Shapes are always checked. Values are checked at once if they are in the CPU's memory. On other
    devices the check would have to wait; there, `Policy.check` reads it later. In a trace, values
    are unknown.

    Args:
        policy: The policy.
        batch: The argument of `Policy.evaluate`.

    Raises:
        MissingColumnError: A column is missing; `"mask"` is only required if the observation space
            has a mask.
        ObservationError: Observations do not have the encoded shape.
        ActionError: Actions have the wrong number of rows or columns, or are not in the space.
        ActionMaskError: Masks have the wrong shape, contain numbers other than 0 and 1, or allow no
            action in a row.
        NonFiniteError: An observation contains NaN or infinity.
    """
    if "obs" not in batch or "raw_action" not in batch:
        raise _missing_column(batch)
    if "mask" not in batch and policy.masks.key is not None:
        raise MissingColumnError(
            "the batch lacks 'mask', but the observation space has an action mask under"
            f" {policy.masks.key!r}. Set batch['mask'] = policy.action_mask(observations), or"
            " batch['mask'] = None if every action was allowed when the policy acted."
        )
    obs = _with_shape(batch["obs"])
    check_encoded(obs.shape, policy.preprocessor.shape, name="obs", place="batch['obs']: ")
    rows = obs.shape[0]
    raw = _with_shape(batch["raw_action"])
    _check_shapes(policy, batch, raw, rows)
    if batch.get("mask") is not None:
        check_columns(policy.masks, _with_shape(batch["mask"]), rows, name="batch['mask']")

    if is_on_other_device(obs) and tensor_device(policy) is not None:
        policy._on_tensors().add_checks_of_batch(obs, raw, batch.get("mask"))
        return
    # None in a trace and on other devices than the CPU.
    raw_array = host_values(raw)
    if raw_array is not None:
        _check_raw(policy, raw_array)
    obs_array = host_values(obs)
    if obs_array is not None:
        check_observations(obs_array, policy.preprocessor)


def _check_raw(policy: Policy, raw: Array) -> None:
    """Raise an error unless raw actions could have been drawn."""
    if raw.dtype.kind not in NUMBER_KINDS:
        raise ActionError(f"batch['raw_action']: expected numbers, found dtype {raw.dtype}.")
    codec = policy.action_codec
    codec.check_raw(raw.reshape(len(raw), codec.width))


def _check_shapes(policy: Policy, batch: Mapping[str, Any], raw: Tensor, rows: int) -> None:
    """Raise an error unless each observation has one raw action and one row of parameters."""
    codec = policy.action_codec
    is_scalar = codec.scalar and len(raw.shape) == 1  # `[B]`, as for a single Discrete
    has_right_columns = is_scalar or tuple(raw.shape[1:]) == (codec.width,)
    if raw.shape[0] != rows or not has_right_columns:
        raise ActionError(
            f"batch['raw_action']: expected shape ({rows}, {codec.width}), a row for each"
            f" observation and a column for each raw value of {policy.action_space}, found shape"
            f" {tuple(raw.shape)}."
        )
    if batch.get("dist_inputs") is None:
        return
    dist_inputs_shape = _with_shape(batch["dist_inputs"]).shape
    if dist_inputs_shape[0] != rows:
        raise ActionError(
            f"batch['dist_inputs']: expected {rows} rows, one for each observation, found shape"
            f" {tuple(dist_inputs_shape)}."
        )


#: Column → how to get it.
_HOW_TO_GET = {
    "obs": "'obs' is what Policy.preprocess(observations) returns",
    "raw_action": "'raw_action' is what Policy.act returns as step.raw_action;"
    " Policy.raw_action(actions) computes it from actions of the environment",
}


def _missing_column(batch: Mapping[str, Any]) -> MissingColumnError:
    missing = [name for name in _HOW_TO_GET if name not in batch]
    how = ". ".join([_HOW_TO_GET[name] for name in missing])
    # Batches of other libraries have the environment's actions.
    env_actions = [name for name in ("action", "actions") if name in batch]
    if "raw_action" in missing and env_actions:
        how += f". Set batch['raw_action'] = policy.raw_action(batch[{env_actions[0]!r}])"
    return MissingColumnError(
        f"the batch lacks {' and '.join(map(repr, missing))}; it has {shown(list(batch))}. {how}."
    )


def _with_shape(value: Any) -> Any:
    """Return the user's tensor or array as it is, and a list of numbers as an array."""
    if hasattr(value, "shape"):  # of any framework's tensors
        return value
    return np.asarray(value)
