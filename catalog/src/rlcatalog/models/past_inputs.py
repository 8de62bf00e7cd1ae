"""Past actions and rewards as inputs to memories (LSTM, attention), and the memories'
last layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcatalog.actions import action_codec
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.models.layers import OutputPlan, output_plan
from rlcatalog.models.views import ViewRequirement
from rlcatalog.spaces.info import Space, SpaceInfo

#: Names of a memory's views. They differ from RLlib's names, which its trunk may request in a
#: different form.
PAST_ACTIONS, PAST_REWARDS = "past_actions", "past_rewards"


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
            return cls(0, rewards, rewards)
        info = action if isinstance(action, SpaceInfo) else SpaceInfo.read(action, "action")  # type: ignore[arg-type]
        return cls(actions, rewards, actions * action_codec(info).input_width + rewards)

    def views(self) -> dict[str, ViewRequirement]:
        """Return the views to request. They are zero for steps before the start of the episode.

        Actions have the shape `[B, width]`, or `[B, n, width]` for n > 1, rewards `[B]` or
        `[B, n]`. Use `x.reshape(len(x), -1)` to get one flat row of values per sample.
        """
        columns = (
            (PAST_ACTIONS, "action_inputs", self.actions),
            (PAST_REWARDS, "rewards", self.rewards),
        )
        return {
            name: ViewRequirement(column, shift=-1 if count == 1 else f"-{count}:-1")
            for name, column, count in columns
            if count
        }

    def of_input(self, input_dict: Mapping[str, Any]) -> list[Any]:
        """Return the views that a model's input contains, in order."""
        return [
            input_dict[name]
            for name, n in ((PAST_ACTIONS, self.actions), (PAST_REWARDS, self.rewards))
            if n
        ]


def memory_outputs(
    config: Mapping[str, Any], width: int, num_outputs: int | None, key: str
) -> OutputPlan:
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
    if not read_config(config, KernelConfig).vf_share_layers and num_outputs is not None:
        raise ConfigError(
            f"{key} with vf_share_layers=False: this memory class does not support a separate"
            " memory for the value. Build the model with rlcatalog.build or"
            " ModelCatalog.get_model_v2, which support it, or omit vf_share_layers."
        )
    return output_plan(config, width, [], num_outputs)
