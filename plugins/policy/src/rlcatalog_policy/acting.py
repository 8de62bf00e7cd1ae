"""A policy's acting step: resume the state, call the backend, check the result, and pass on the
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Backend, Step, Tensor
from rlcatalog_policy.encoder import host_values, to_array
from rlcatalog_policy.history import Rewards
from rlcatalog_policy.non_finite import check_finite_step
from rlcatalog_policy.state import State, StateBeforeStep

if TYPE_CHECKING:
    from rlcatalog_policy.frozen_wrapper import FrozenBackend
    from rlcatalog_policy.policy import Policy


def take_step(
    policy: Policy,
    backend: Backend | FrozenBackend,
    encoded: Any,
    state: State | None,
    prev_reward: Rewards | None,
    mask: Any,
    explore: bool,
    policy_only: bool = False,
) -> Step:
    """Choose actions for encoded observations, and return them together with the next state.

    Args:
        policy: The policy, which carries the state and checks the step.
        backend: Object that chooses the actions: the policy's backend, or its frozen backend.
        encoded: Encoded observations, an array or a tensor; a frozen backend takes arrays only.
        state: See `Policy.act`.
        prev_reward: See `Policy.act`.
        mask: A checked mask, boolean `[B, m]`, an array or a tensor like `encoded`; or None.
        explore: See `Policy.act`.
        policy_only: Whether to leave out a critic of its own, so that the step has no value.
    """
    episode_states = policy._episode_states
    is_tensor = not isinstance(encoded, np.ndarray)
    # Views of past steps are arrays, so they read an array.
    view_input = encoded
    if is_tensor:
        view_input = episode_states.view_input(encoded)
    before = episode_states.resume(view_input, state, prev_reward)

    with policy._model_lock:
        result = run_backend(policy, backend, encoded, before, mask, explore, policy_only)

    raw, logp, value, dist_inputs, new_memory = result
    # The step keeps tensors; the state and the environment's actions are arrays.
    raw_array = raw
    if is_tensor:
        raw_array = to_array(raw)
        _check_step_of_tensors(
            policy, raw_array, logp, value, dist_inputs, encoded, mask, before.steps
        )
    else:
        check_finite_step(logp, value, dist_inputs, encoded, policy.preprocessor, before.steps)
        if policy.output_checker.checks_actions:
            policy.output_checker.check_actions(raw, mask)

    after = episode_states.after(before, view_input, raw_array, new_memory)
    action = policy.action_codec.adapt(raw_array)
    return Step(action, raw, logp, value, dist_inputs, after)


def run_backend(
    policy: Policy,
    backend: Backend | FrozenBackend,
    encoded: Any,
    before: StateBeforeStep,
    mask: Any,
    explore: bool,
    policy_only: bool,
) -> tuple[Any, ...]:
    """Return the result of `Backend.act`; see `take_step` for the arguments.

    Raises:
        PartError: A plugin is at fault, which the error names.
    """
    # In PyTorch `rlcatalog_torch.backend.TorchBackend.act`, in TensorFlow
    # `rlcatalog_tf.backend.TFBackend.act`; for a frozen policy,
    # `rlcatalog_export.torch.freeze_policy.FrozenTorch.act`.
    try:
        if policy_only:
            return backend.act(
                encoded, before.views, before.memory, mask, explore, policy_only=True
            )
        return backend.act(encoded, before.views, before.memory, mask, explore)
    except BaseException as error:
        # If a plugin is at fault, this raises another error, which names it.
        policy.output_checker.raise_if_part_at_fault(error)
        raise


def check_critic_can_be_left_out(policy: Policy) -> None:
    """Check that a policy has a critic of its own, without which it can act.

    Raises:
        NotServedError: It has none.
    """
    if policy.resolution.critic is None:
        raise NotServedError(
            f"policy_only: {policy.model_name} also computes the value; only a critic of its own"
            " (critic={} in the config) can be left out."
        )


def _check_step_of_tensors(
    policy: Policy,
    raw: Array,
    logp: Tensor,
    value: Tensor | None,
    dist_inputs: Tensor,
    encoded: Tensor,
    mask: Array | Tensor | None,
    steps: Array | None,
) -> None:
    """Check a step whose results are tensors, as `take_step` checks arrays.

    NaN and infinity are looked for in CPU memory only, because the check would have to wait for
    another device.
    """
    logp_array = host_values(logp)
    if logp_array is not None:
        check_finite_step(
            logp_array,
            host_values(value),
            host_values(dist_inputs),
            host_values(encoded),
            policy.preprocessor,
            steps,
        )
    if policy.output_checker.checks_actions:
        policy.output_checker.check_actions(raw, to_array(mask))
