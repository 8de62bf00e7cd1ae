"""Checks on the batch passed to `Policy.evaluate`: its numbers of rows, stored
actions and masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlcatalog_policy
from rlcatalog.errors import ActionError, MissingColumnError, shown
from rlcatalog_policy.encoder import check_columns, check_encoded, host_values
from rlcatalog_policy.non_finite import check_observations


def check_batch(policy: rlcatalog_policy.Policy, batch: Mapping[str, Any]) -> None:
    """Raise an error if the data in a training batch cannot have come from acting.

    Shapes are always checked. Values are checked only outside a trace, in which they are unknown,
    and only on the CPU: on other devices, each step would have to wait for the device.

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
        raise _missing(batch)
    if "mask" not in batch and policy.masks.key is not None:
        raise MissingColumnError(
            "batch lacks 'mask', but the observation space has an action mask under"
            f" {policy.masks.key!r}. Here: batch['mask'] = policy.action_mask(observations), or"
            " batch['mask'] = None if every action was allowed when the policy acted."
        )
    obs = _shaped(batch["obs"])
    check_encoded(obs.shape, policy.preprocessor.shape, "obs", "batch['obs']: ")
    rows, codec = obs.shape[0], policy.action_codec
    raw = _shaped(batch["raw_action"])
    flat = codec.scalar and len(raw.shape) == 1
    if raw.shape[0] != rows or not (flat or tuple(raw.shape[1:]) == (codec.width,)):
        raise ActionError(
            f"batch['raw_action']: expected shape ({rows}, {codec.width}), a row for each"
            f" observation and a column for each raw value of {policy.action_space}, found shape"
            f" {tuple(raw.shape)}."
        )
    if (
        batch.get("dist_inputs") is not None
        and (shape := _shaped(batch["dist_inputs"]).shape)[0] != rows
    ):
        raise ActionError(
            f"batch['dist_inputs']: expected {rows} rows, one for each observation, found shape"
            f" {tuple(shape)}."
        )
    mask = None if batch.get("mask") is None else _shaped(batch["mask"])
    if mask is not None:
        check_columns(policy.masks, mask, rows, "batch['mask']")
    if (actions := host_values(raw)) is not None:
        if actions.dtype.kind not in "biuf":
            raise ActionError(
                f"batch['raw_action']: expected numbers, found dtype {actions.dtype}."
            )
        codec.check_raw(actions.reshape(len(actions), codec.width))
    if (encoded := host_values(obs)) is not None:
        check_observations(encoded, policy.preprocessor)


#: Column → how to get it.
_NEEDED = {
    "obs": "encoded observations, as Policy.preprocess(observations) returns them",
    "raw_action": "step.raw_action from Policy.act, or Policy.raw_action(the environment's"
    " actions)",
}


def _missing(batch: Mapping[str, Any]) -> MissingColumnError:
    lacks = [name for name in _NEEDED if name not in batch]
    how = "; ".join(f"{name!r}: {_NEEDED[name]}" for name in lacks)
    given = next((name for name in ("action", "actions") if name in batch), None)
    if "raw_action" in lacks and given is not None:
        how += f". Here: batch['raw_action'] = policy.raw_action(batch[{given!r}])"
    return MissingColumnError(
        f"batch lacks {' and '.join(map(repr, lacks))}; it has {shown(list(batch))}. {how}."
    )


def _shaped(value: Any) -> Any:
    return value if hasattr(value, "shape") else np.asarray(value)
