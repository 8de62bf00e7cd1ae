"""Past actions and rewards as inputs to memories (LSTM, attention), and the memories'
last layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rlcatalog.actions import action_codec
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.models.layers import DensePlan, plan_dense_layers
from rlcatalog.models.views import ViewRequirement
from rlcatalog.spaces.info import Space, SpaceInfo

#: Names of a memory's views. They differ from RLlib's names, which its trunk may request in a
#: different form.
PAST_ACTIONS = "past_actions"
PAST_REWARDS = "past_rewards"


@dataclass(frozen=True)
class PastInputs:
    """How many past actions and rewards a memory reads.

    Attributes:
        actions: Number of past actions.
        rewards: Number of past rewards.
        width: Total width of both.
    """

    actions: int
    rewards: int
    width: int

    @classmethod
    def of(cls, action: SpaceInfo | Space | None, actions: int, rewards: int) -> PastInputs:
        """Compute the widths for an action space.

        Args:
            action: The action space, or its SpaceInfo; None is allowed if there are no past
                actions.
            actions: Number of past actions.
            rewards: Number of past rewards.
        """
        if not actions:
            return cls(actions=0, rewards=rewards, width=rewards)
        if isinstance(action, SpaceInfo):
            info = action
        else:
            info = SpaceInfo.read(cast("Space", action), "action")
        width_of_actions = actions * action_codec(info).input_width
        return cls(actions=actions, rewards=rewards, width=width_of_actions + rewards)

    def views(self) -> dict[str, ViewRequirement]:
        """Return the views to request. They are zero for steps before the start of the episode.

        Actions have the shape `[B, width]`, or `[B, n, width]` for n > 1, rewards `[B]` or
        `[B, n]`. Use `x.reshape(len(x), -1)` to get one flat row of values per sample.
        """
        views = {}
        if self.actions:
            views[PAST_ACTIONS] = _view_of_last_steps("action_inputs", self.actions)
        if self.rewards:
            views[PAST_REWARDS] = _view_of_last_steps("rewards", self.rewards)
        return views

    def of_input(self, input_dict: Mapping[str, Any]) -> list[Any]:
        """Return the views that a model's input contains, in order."""
        values = []
        if self.actions:
            values.append(input_dict[PAST_ACTIONS])
        if self.rewards:
            values.append(input_dict[PAST_REWARDS])
        return values


def _view_of_last_steps(column: str, count: int) -> ViewRequirement:
    """Return the view of a column at the last `count` steps; a single step has no axis of steps."""
    shift: int | str = -1 if count == 1 else f"-{count}:-1"
    return ViewRequirement(column, shift=shift)


def memory_outputs(
    config: Mapping[str, Any], width: int, num_outputs: int | None, key: str
) -> DensePlan:
    """Return a memory's last layers, which compute both the logits and the value from its output.

    With `vf_share_layers=False` the kernel builds a memory twice, each with `num_outputs=None`. As
    in RLlib, `no_final_linear` has no effect here: a memory has no hidden layer that could be the
    output.

    Args:
        config: The flat model config.
        width: Output width of the memory.
        num_outputs: Width of the model's output, or None for a trunk.
        key: The config key that switched the memory on, for error messages.

    Raises:
        ConfigError: `vf_share_layers` is False, but the memory is not built as a trunk.
    """
    value_is_separate = not read_config(config, KernelConfig).vf_share_layers
    if value_is_separate and num_outputs is not None:
        raise ConfigError(
            f"{key} with vf_share_layers=False: this memory class does not support a separate"
            " memory for the value. Build the model with rlcatalog.build or"
            " ModelCatalog.get_model_v2, which support it, or omit vf_share_layers."
        )
    return plan_dense_layers(config, width, hidden=[], num_outputs=num_outputs)
