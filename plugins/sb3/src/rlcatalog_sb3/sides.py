"""The sides of a policy's model, for error messages: the policy, and a critic of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlcatalog import ModelV2, Policy
from rlcatalog.choice import Resolution
from rlcatalog.frameworks import Array
from rlcatalog.models import SeparateCritic


class Side(NamedTuple):
    """One side of a policy's model.

    Attributes:
        resolution: The choices for this side.
        model: Its model.
        model_name: The name of its model's class.
        initial_state: Its states at the start of an episode.
        place: What its config keys begin with in a message: `"critic: "`, or nothing for the
            policy.
    """

    resolution: Resolution
    model: ModelV2
    model_name: str
    initial_state: Sequence[Array]
    place: str

    @property
    def name(self) -> str:
        """The memory's name, or the model's if there is no memory around it."""
        memory = self.resolution.choices["memory"].part
        if memory is None:
            return self.model_name
        return f"the memory {memory.name!r}"

    @property
    def where(self) -> str:
        """The config keys that select the memory, as the beginning of a message."""
        if self.resolution.choices["memory"].part is None:
            return self.place  # no config key selects the model's own memory
        return f"{self.place}{keys_that_select(self.resolution, 'memory')}: "


def sides_of(policy: Policy) -> list[Side]:
    """Return the policy's side of its model, and the critic's if it has a critic of its own."""
    model = policy.model
    critic = policy.resolution.critic
    if critic is None:
        side = Side(policy.resolution, model, policy.model_name, policy.memory.initial, place="")
        return [side]
    assert isinstance(model, SeparateCritic)
    policy_state = policy.memory.initial[: model.num_policy_states]
    critic_state = policy.memory.initial[model.num_policy_states :]
    critic_name = type(model.critic).__name__
    return [
        Side(policy.resolution, model.policy, policy.model_name, policy_state, place=""),
        Side(critic, model.critic, critic_name, critic_state, place="critic: "),
    ]


def keys_that_select(resolution: Resolution, slot: str) -> str:
    """Return the given config keys that select the part for a slot, or the part's name if there are
    none.
    """
    part = resolution.part(slot)
    # Keys that the part only reads belong to other parts, so they do not select it.
    own_keys = set(resolution.config_keys(part)) - set(part.declaration.reads)
    config = resolution.config
    # A default of Stable-Baselines3's nets is not among the explicit keys.
    given_keys = [key for key in config.given if key in own_keys and key in config.explicit]
    return ", ".join(given_keys) or part.name
