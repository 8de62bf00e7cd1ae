"""One step of a policy as a function of tensors, for what records it: what the backend does, and nothing around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlcatalog.actions import params_given
from rlcatalog_torch import flat_sample, flatten_rows, values_of, widened

if TYPE_CHECKING:
    from rlcatalog_policy import Policy


def acted(
    policy: Policy,
    obs: Tensor,
    views: Mapping[str, Any],
    memory: Sequence[Tensor],
    mask: Tensor | None,
    explore: bool,
) -> dict[str, Tensor]:
    """Let model and distribution do one step; the model must be in evaluation mode.

    Args:
        policy: The policy.
        obs: Encoded and filtered observations `[B, ...]`, in the model's dtype.
        views: The views of past steps by name, tensors or structures of them.
        memory: The model's memory, tensors `[B, ...]`.
        mask: Action mask `[B, m]`, or None.
        explore: Sample; else take the most likely action.

    Returns:
        `raw_action` `[B, width]`, `logp` `[B]`, `dist_inputs` `[B, n]`, `value` `[B]` where the model has a value
        branch, and the memory it returned as `memory_0`, …
    """
    model: Any = policy.model
    rows = obs.shape[0]
    inputs: dict[str, Any] = {"obs": obs, "is_training": False, "single_steps": True, **views}
    lengths = torch.ones(rows, dtype=torch.int32) if memory else None
    params, returned = model(inputs, list(memory), lengths)
    params = widened(params)
    if mask is not None:
        params = policy.dist_class.masked(params, mask)
    dist = policy.dist_class(params, model)
    sample = dist.sample() if explore else dist.deterministic_sample()
    flat = flat_sample(sample)
    found = {
        "raw_action": flatten_rows(flat), "logp": dist.logp(flat), "dist_inputs": params_given(dist, sample)
    }  # fmt: skip
    if policy.has_value:
        found["value"] = values_of(model, rows)
    return found | {f"memory_{i}": widened(part) for i, part in enumerate(returned if memory else ())}
