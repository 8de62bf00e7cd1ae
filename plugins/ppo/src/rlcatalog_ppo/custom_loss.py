"""A model's `custom_loss`: what it is given, and what it may return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, shown

Array = np.ndarray[Any, Any]

#: RLlib's names of columns that every minibatch holds under ours.
_RENAMED = {"rewards": "reward", "advantages": "advantage", "action_logp": "logp", "value_targets": "target"}
#: Columns that every minibatch can give under RLlib's names.
IN_EVERY_BATCH = frozenset({"obs", "actions", *_RENAMED})


def as_drawn(policy: Policy, raw: Any) -> Any:
    """Return raw actions `[..., width]` as distributions draw and RLlib's batches hold them: `[...]` for a Discrete."""
    return raw[..., 0] if policy.action_codec.scalar else raw


def loss_inputs(policy: Policy, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `custom_loss` is given: the minibatch, with RLlib's names beside ours."""
    theirs = {name: batch[ours] for name, ours in _RENAMED.items()}
    own = {name: part for name, part in batch.items() if name != "columns"}
    return {**batch.get("columns", {}), **own, **theirs, "actions": as_drawn(policy, batch["raw_action"])}


def check_loss(policy: Policy, loss: Any, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the terms of what `custom_loss` returned.

    Args:
        policy: The policy.
        loss: A tensor, or a list of such.
        is_tensor: Whether something is one of the framework's tensors.

    Raises:
        ModelContractError: It is something else.
    """
    terms = list(loss) if isinstance(loss, list | tuple) else [loss]
    if not terms or not all(map(is_tensor, terms)):
        raise ModelContractError(
            f"{policy.model_name}: custom_loss() must return a tensor of {policy.framework}, or a list of such; found"
            f" {shown(loss, 80)}. Return policy_loss with the terms of your own added to it."
        )
    return terms


def no_gradient(policy: Policy, algorithm: str) -> ModelContractError:
    """Return the error for a loss that depends on no weight."""
    return ModelContractError(
        f"{algorithm}: the loss depends on none of {policy.model_name}'s weights, so that nothing can be learned. Look"
        " for detach(), stop_gradient() or NumPy in its forward pass, value_function() and custom_loss(), and in the"
        " distribution's logp()."
    )
