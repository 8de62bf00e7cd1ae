"""Action computation in RLlib's style: one observation at a time, with the memory as a list of
arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcatalog import Policy
from rlcatalog.actions import first_row
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog_compat.arrays import convert_to_numpy


class EpisodeState(list[Any]):
    """An episode's memory in RLlib's format: arrays without a batch axis.

    It also carries the policy's other state, such as past actions, to the next call.

    Args:
        carried: The policy's state for a single environment.
    """

    def __init__(self, carried: Any) -> None:
        super().__init__(part[0] for part in carried.memory)
        self.carried = carried


def act(
    policy: Policy, observation: Any, state: Any, prev_action: Any, prev_reward: Any, explore: bool
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
    carried = _state_of(policy, state)
    if prev_action is not None and policy.views and not isinstance(state, EpisodeState):
        raise NotServedError(
            "compute_single_action: the model reads past actions, which this state does not"
            " contain. Pass the state that the last call returned; it contains them, so"
            " prev_action is not needed."
        )
    reward = None if prev_reward is None else np.array([prev_reward], np.float32)
    step = policy.act([observation], carried, prev_reward=reward, explore=explore)
    extra = {
        "vf_preds": None if step.value is None else step.value[0],
        "action_logp": step.logp[0],
        "action_dist_inputs": step.dist_inputs[0],
    }
    return first_row(step.action), [] if step.state is None else EpisodeState(step.state), extra


def _state_of(policy: Policy, state: Any) -> Any:
    if isinstance(state, EpisodeState):
        return state.carried
    if state is None or len(state) == 0:
        return None
    began = policy.initial_state(1)
    expected = [] if began is None else [part.shape[1:] for part in began.memory]
    found = [convert_to_numpy(part, reduce_type=False) for part in state]
    if [part.shape for part in found] != expected:
        raise ModelContractError(
            f"compute_single_action: {policy.model_name} has a state of shapes {expected}, found"
            f" {[part.shape for part in found]}. Start with model.get_initial_state(), then pass"
            " the returned state."
        )
    memory = tuple(
        part[None].astype(own.dtype) for part, own in zip(found, began.memory, strict=True)
    )
    return began._replace(memory=memory)


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
        began = self._policy.initial_state(1)
        return [] if began is None else EpisodeState(began)

    def compute_single_action(
        self,
        obs: Any = None,
        state: Any = None,
        *,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
        explore: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return the action for one observation, the next memory, and the other
        outputs; see `act`.
        """
        return act(self._policy, obs, state, prev_action, prev_reward, explore is not False)

    def __getattr__(self, name: str) -> Any:
        if name == "_policy":  # `copy` reads attributes before there is a policy
            raise AttributeError(name)
        return getattr(self._policy, name)

    def __repr__(self) -> str:
        return repr(self._policy)
