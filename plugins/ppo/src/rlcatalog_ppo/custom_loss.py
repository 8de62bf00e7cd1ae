"""A model's own loss, `custom_loss`: what it reads, and what it may return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import Array, Tensor

#: RLlib's names → our names, for columns in every minibatch.
_OUR_NAMES = {
    "rewards": "reward",
    "advantages": "advantage",
    "action_logp": "logp",
    "value_targets": "target",
}
#: Columns that every minibatch provides under RLlib's names.
_IN_EVERY_MINIBATCH = frozenset({"obs", "actions", *_OUR_NAMES})


def rllib_actions(policy: Policy, raw_action: Tensor) -> Any:
    """Return raw actions `[..., width]` in the shape of RLlib's batches: `[...]` for a Discrete."""
    is_discrete = policy.action_codec.scalar
    return raw_action[..., 0] if is_discrete else raw_action


def columns_for_custom_loss(trajectory: Mapping[str, Array], *, done: Array) -> dict[str, Array]:
    """Return a rollout's columns that only `custom_loss` reads, under RLlib's names.

    Args:
        trajectory: All columns of the rollout under RLlib's names, each `[T, N, ...]`.
        done: Whether the episode ended at each step, `[T, N]`.
    """
    columns = {
        name: column for name, column in trajectory.items() if name not in _IN_EVERY_MINIBATCH
    }
    columns["dones"] = done
    return columns


def loss_inputs(policy: Policy, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `custom_loss`'s argument: the minibatch under both RLlib's and rlcatalog's names."""
    own_columns = dict(batch)
    columns_for_loss = own_columns.pop("columns", {})  # already under RLlib's names
    renamed = {theirs: batch[ours] for theirs, ours in _OUR_NAMES.items()}
    return {
        **columns_for_loss,
        **own_columns,
        **renamed,
        "actions": rllib_actions(policy, batch["raw_action"]),
    }


def loss_terms(
    policy: Policy, loss: Tensor | Sequence[Tensor], is_tensor: Callable[[Any], bool]
) -> list[Any]:
    """Return the result of `custom_loss` as a list of loss terms.

    Args:
        policy: The policy.
        loss: What `custom_loss` returned, which should be a tensor, or a list of tensors.
        is_tensor: The framework's test for tensors.

    Raises:
        ModelContractError: The result is neither a tensor nor a list of tensors.
    """
    terms = list(loss) if isinstance(loss, list | tuple) else [loss]
    if not terms or not all(is_tensor(term) for term in terms):
        raise ModelContractError(
            f"{policy.model_name}: custom_loss() must return a tensor of {policy.framework}, or a"
            f" list of them; found {shown(loss, length=80)}. Return policy_loss with your terms"
            " added to it."
        )
    return terms
