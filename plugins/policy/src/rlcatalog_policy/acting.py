"""A policy's acting step: resume the state, call the backend, check the result, and pass on the
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.frameworks import Array, Backend, Step
from rlcatalog_policy.encoder import host_values, to_array
from rlcatalog_policy.non_finite import check_step
from rlcatalog_policy.state import State

if TYPE_CHECKING:
    from rlcatalog_policy.frozen import FrozenBackend
    from rlcatalog_policy.policy import Policy


def take_step(
    policy: Policy,
    acting: Backend | FrozenBackend,
    encoded: Any,
    state: State | None,
    prev_reward: Any,
    mask: Any,
    explore: bool,
) -> Step:
    """Choose actions for encoded observations, and return them together with the next state.

    Args:
        policy: The policy, which carries the state and checks the step.
        acting: Object that chooses the actions: the policy's backend, or its frozen backend.
        encoded: Encoded observations, in the form that `Policy.act_encoded` accepts.
        state: See `Policy.act`.
        prev_reward: See `Policy.act`.
        mask: A checked mask, boolean `[B, m]`, or None.
        explore: See `Policy.act`.
    """
    states, before, steps = policy._states, None, None
    array = encoded
    if (tensors := not isinstance(encoded, np.ndarray)) and states.looks_back:
        array = to_array(encoded)
    memory: tuple[Array, ...] = ()
    views: Mapping[str, Any] = {}
    if states.carries:
        before = states.resume(array, state, prev_reward)
        memory = before.memory
        if states.looks_back:
            views, steps = states.shown(before), before.history.t
    with policy._model_lock:
        try:
            raw, logp, value, inputs, new_memory = acting.act(encoded, views, memory, mask, explore)
        except BaseException as error:
            policy.output_checker.blame(error)
            raise
    drawn = raw, logp, value, inputs
    if tensors:
        raw, mask = to_array(raw), to_array(mask)
        logp, value, inputs, encoded = map(host_values, (logp, value, inputs, encoded))
    if logp is not None:
        check_step(logp, value, inputs, encoded, policy.preprocessor, steps)
    if policy.output_checker.checks_actions:
        policy.output_checker.check_actions(raw, mask)
    after = None if before is None else states.after(before, array, raw, new_memory)
    return Step(policy.action_codec.adapt(raw), *drawn, after)
