"""Check of what `Policy.evaluate` is given: that rows belong together, and that stored actions and masks are such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import ActionError, MissingColumnError, shown
from rlcatalog_policy.encoder import check_columns, check_encoded, host_values
from rlcatalog_policy.non_finite import check_observations

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy


def check_batch(policy: Policy, batch: Mapping[str, Any]) -> None:
    """Raise where a training batch cannot be what acting left.

    What a trace knows of tensors, their shapes, is checked there, too; their values are known outside it only. Those on
    another device than the CPU are taken at their word: to read them, each step would wait for the device.

    Args:
        policy: The policy.
        batch: What `Policy.evaluate` takes.

    Raises:
        MissingColumnError: A column is missing.
        ObservationError: Observations have another shape than encoded ones.
        ActionError: Actions have another number of rows or columns, or are none of the space.
        ActionMaskError: Masks have another shape, hold something else than 0 and 1, or allow nothing in some row.
        NonFiniteError: An observation holds a number that is NaN or infinite.
    """
    if "obs" not in batch or "raw_action" not in batch:
        raise _missing(batch)
    obs = _shaped(batch["obs"])
    check_encoded(obs.shape, policy.preprocessor.shape, "obs", "batch['obs']: ")
    rows, codec = obs.shape[0], policy.action_codec
    raw = _shaped(batch["raw_action"])
    flat = codec.scalar and len(raw.shape) == 1
    if raw.shape[0] != rows or not (flat or tuple(raw.shape[1:]) == (codec.width,)):
        raise ActionError(
            f"batch['raw_action']: expected shape ({rows}, {codec.width}), a row for each observation and a column for"
            f" each raw value of {policy.action_space}, found shape {tuple(raw.shape)}."
        )
    if batch.get("dist_inputs") is not None and (shape := _shaped(batch["dist_inputs"]).shape)[0] != rows:
        raise ActionError(
            f"batch['dist_inputs']: expected {rows} rows, one for each observation, found shape {tuple(shape)}."
        )
    mask = None if batch.get("mask") is None else _shaped(batch["mask"])
    if mask is not None:
        check_columns(policy.masks, mask, rows, "batch['mask']")
    if (actions := host_values(raw)) is not None:
        if actions.dtype.kind not in "biuf":
            raise ActionError(f"batch['raw_action']: expected numbers, found dtype {actions.dtype}.")
        codec.check_raw(actions.reshape(len(actions), codec.width))
    if (encoded := host_values(obs)) is not None:
        check_observations(encoded, policy.preprocessor)


#: Column → how to come by it.
_NEEDED = {
    "obs": "encoded observations, as Policy.preprocess(observations) returns them",
    "raw_action": "what Policy.act returned as step.raw_action, or Policy.raw_action(the environment's actions)",
}


def _missing(batch: Mapping[str, Any]) -> MissingColumnError:
    lacks = [name for name in _NEEDED if name not in batch]
    how = "; ".join(f"{name!r}: {_NEEDED[name]}" for name in lacks)
    given = next((name for name in ("action", "actions") if name in batch), None)
    if "raw_action" in lacks and given is not None:
        how += f". Here: batch['raw_action'] = policy.raw_action(batch[{given!r}])"
    return MissingColumnError(f"batch lacks {' and '.join(map(repr, lacks))}; it has {shown(list(batch))}. {how}.")


def _shaped(value: Any) -> Any:
    return value if hasattr(value, "shape") else np.asarray(value)
