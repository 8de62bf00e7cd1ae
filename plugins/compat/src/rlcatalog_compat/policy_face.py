"""Action computation in RLlib's style: one observation at a time, with the memory as a list of
arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlcatalog import Policy
from rlcatalog.actions import first_row
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_compat.arrays import convert_to_numpy


class PolicyState(Protocol):
    """State of a policy from `Policy.initial_state` or a step: its memory, and more."""

    @property
    def memory(self) -> tuple[Array, ...]: ...

    def _replace(self, *, memory: tuple[Array, ...]) -> PolicyState: ...


class EpisodeState(list[Any]):
    """An episode's memory in RLlib's format: arrays without a batch axis.

    It also carries the policy's other state, such as past actions, to the next call.

    Args:
        policy_state: The policy's state for a single environment.
    """

    def __init__(self, policy_state: PolicyState) -> None:
        super().__init__(array[0] for array in policy_state.memory)
        self.policy_state = policy_state


def act(
    policy: Policy,
    observation: Any,
    state: Sequence[Tensor] | None,
    *,
    prev_action: Any,
    prev_reward: float | None,
    explore: bool,
) -> tuple[Any, EpisodeState | list[Any], dict[str, Any]]:
    """Return an action for one observation, the next memory, and RLlib's additional outputs.

    Args:
        policy: The policy.
        observation: Observation as returned by the environment.
        state: The state from the previous call, or arrays from the model's `get_initial_state`;
            empty at the start of an episode.
        prev_action: The previous action; not needed if the state comes from a previous call.
        prev_reward: The last reward.
        explore: Whether to sample the action.

    Raises:
        ModelContractError: The number or the shapes of the state's arrays do not match the model.
        NotServedError: The model reads past actions, but the state does not contain them.
    """
    policy_state = _policy_state(policy, state)
    has_past_actions = isinstance(state, EpisodeState)
    if prev_action is not None and policy.views and not has_past_actions:
        raise NotServedError(
            "compute_single_action: the model reads past actions, which this state does not"
            " contain. Pass the state that the last call returned; it contains them, so"
            " prev_action is not needed."
        )
    rewards = None
    if prev_reward is not None:
        rewards = np.array([prev_reward], np.float32)
    step = policy.act([observation], policy_state, prev_reward=rewards, explore=explore)
    value = None
    if step.value is not None:
        value = step.value[0]
    outputs = {
        "vf_preds": value,
        "action_logp": step.logp[0],
        "action_dist_inputs": step.dist_inputs[0],
    }
    next_state: EpisodeState | list[Any] = []
    if step.state is not None:
        next_state = EpisodeState(step.state)
    return first_row(step.action), next_state, outputs


def _policy_state(policy: Policy, state: Sequence[Tensor] | None) -> Any:
    """Return the policy's state with this memory; None at the start of an episode.

    Raises:
        ModelContractError: The number or the shapes of the state's arrays do not match the model.
    """
    if isinstance(state, EpisodeState):
        return state.policy_state
    if state is None or len(state) == 0:
        return None
    initial_state = policy.initial_state(1)
    initial_memory: tuple[Array, ...] = ()
    if initial_state is not None:
        initial_memory = initial_state.memory
    arrays = [convert_to_numpy(part, reduce_type=False) for part in state]
    shapes = [array.shape for array in arrays]
    expected_shapes = [initial.shape[1:] for initial in initial_memory]
    if shapes != expected_shapes:
        raise ModelContractError(
            f"compute_single_action: {policy.model_name} has a state of shapes {expected_shapes},"
            f" found {shapes}. Start with model.get_initial_state(), then pass the returned state."
        )
    memory = tuple(
        array[None].astype(initial.dtype)
        for array, initial in zip(arrays, initial_memory, strict=True)
    )
    return initial_state._replace(memory=memory)


class PolicyFace:
    """Policy with RLlib's method names.

    Args:
        policy: The policy; all other attributes are forwarded to it.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def get_initial_state(self) -> list[Any]:
        """Return the memory at the start of an episode: arrays without a batch axis; empty if there
        is no memory.
        """
        initial_state = self._policy.initial_state(1)
        if initial_state is None:
            return []
        return EpisodeState(initial_state)

    def compute_single_action(
        self,
        obs: Any = None,
        state: Sequence[Tensor] | None = None,
        *,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        explore: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return the action for one observation, the next memory, and the other
        outputs; see `act`.
        """
        return act(
            self._policy,
            obs,
            state,
            prev_action=prev_action,
            prev_reward=prev_reward,
            explore=explore is not False,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_policy":  # `copy` reads attributes before there is a policy
            raise AttributeError(name)
        return getattr(self._policy, name)

    def __repr__(self) -> str:
        return repr(self._policy)
