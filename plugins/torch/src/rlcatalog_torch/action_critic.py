"""Critics for the values of actions, Q(s, a), as DQN, SAC and TD3 learn them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlcatalog import Catalog
from rlcatalog.catalog import CriticTrunk, build_critic_trunk
from rlcatalog.errors import NotServedError
from rlcatalog.models import set_weights_of, weights_of
from rlcatalog_torch.action_values import dueling_values


class ActionCritic(nn.Module):
    """Critic for the values of actions: a trunk from the catalog, followed by a linear layer.

    Args:
        trunk: The trunk.
        num_outputs: Number of outputs for each action: 1 for a value, more for quantiles.
        dueling: Whether the outputs are advantages, to which the value of the observation is added.

    Attributes:
        preprocessor: Encodes the environment's observations for the critic.
        resolution: The choices for the trunk.

    Raises:
        NotServedError: These layers cannot follow the trunk.
    """

    def __init__(self, trunk: CriticTrunk, num_outputs: int = 1, *, dueling: bool = False) -> None:
        super().__init__()
        self.preprocessor = trunk.preprocessor
        self.resolution = trunk.resolution
        self.trunk: Any = trunk.model
        self.num_choices = trunk.num_choices
        if trunk.bounds is not None:
            # To scale actions from their bounds to [-1, 1]; not saved with the weights.
            middle = torch.as_tensor(trunk.bounds.middle)
            half_width = torch.as_tensor(trunk.bounds.half_width)
            self.register_buffer("middle", middle, persistent=False)
            self.register_buffer("half_width", half_width, persistent=False)
        trunk.check_layers(num_outputs, dueling=dueling)
        self.output: nn.Module = nn.Identity()
        if not trunk.has_values:
            self.output = nn.Linear(trunk.width, num_outputs * (trunk.num_choices or 1))
        self.value: nn.Linear | None = None
        if dueling:
            self.value = nn.Linear(trunk.width, 1)

    def forward(
        self, obs: Tensor, actions: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Return the values of actions.

        Args:
            obs: Encoded observations `[B, ...]`.
            actions: For continuous actions: the actions `[B, ...]`, between their bounds. Those of
                a Tuple or Dict are rows `[B, k]`, as a policy's raw actions are. None for a
                Discrete.
            mask: For a dueling critic: whether each action is allowed, boolean `[B, n]`; None
                allows all. Forbidden actions do not count in the mean of the advantages.

        Returns:
            The outputs `[B, num_outputs]` for these actions or, for a Discrete with n actions, the
            outputs `[B, n * num_outputs]` for all actions.
        """
        inputs = {"obs": self._trunk_input(obs, actions), "is_training": self.training}
        no_state: list[Tensor] = []
        no_sequence_lengths = None
        features: Tensor = self.trunk(inputs, no_state, no_sequence_lengths)[0]
        features = features.flatten(start_dim=1)
        outputs: Tensor = self.output(features)
        if self.value is not None:
            outputs = dueling_values(outputs, self.value(features), mask)
        return outputs

    def _trunk_input(self, obs: Tensor, actions: Tensor | None) -> Tensor:
        """Return the observations or, for continuous actions, rows that end with the action."""
        if self.num_choices is not None:
            if actions is not None:
                raise NotServedError(
                    f"actions: this critic returns the values of all {self.num_choices} actions."
                    " Pass the observations alone, and select among its values."
                )
            return obs
        if actions is None:
            raise NotServedError("actions: a critic for continuous actions needs them.")
        rows = obs.flatten(start_dim=1)
        if not rows.is_floating_point():
            rows = rows.float()
        unscaled = actions.reshape(len(rows), -1)
        scaled = (unscaled - self.get_buffer("middle")) / self.get_buffer("half_width")
        return torch.cat([rows, scaled.to(rows.dtype)], dim=1)

    def get_weights(self) -> dict[str, Any]:
        """Return all weights as arrays; the names and layouts are the same in TensorFlow."""
        weights = {f"trunk.{name}": value for name, value in weights_of(self.trunk).items()}
        for name, weight in self.state_dict().items():
            if not name.startswith("trunk."):
                weights[name] = weight.detach().cpu().numpy().copy()
        return weights

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Set all weights from arrays with the names of `get_weights`."""
        of_trunk = {}
        of_layers = {}
        for name, value in weights.items():
            if name.startswith("trunk."):
                of_trunk[name.removeprefix("trunk.")] = value
            else:
                of_layers[name] = torch.as_tensor(value)
        set_weights_of(self.trunk, of_trunk)
        self.load_state_dict({**self.state_dict(), **of_layers})


def build_action_critic(
    observation_space: Space[Any],
    action_space: Space[Any],
    config: Mapping[str, Any] | None = None,
    *,
    num_outputs: int = 1,
    dueling: bool = False,
    catalog: Catalog | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> ActionCritic:
    """Build a critic for the values of actions from a model config.

    For a Discrete, the critic sees the observation and returns the values of all actions, as DQN
    learns them. For a Box of floats, and for a Tuple or Dict of them, the action is one more entry
    of the observation, so any trunk fits: for a vector it is a dense network over both, and for a
    Dict with an image, the action joins the features of the image.

    Args:
        observation_space: The environment's observation space. The critic takes observations as
            `critic.preprocessor` or the `preprocess` of a policy with this config encodes them.
            An action mask in a Dict is not part of them.
        action_space: The environment's action space.
        config: The critic's model config.
        num_outputs: Number of outputs for each action.
        dueling: For a Discrete: whether the critic is a dueling network (Wang et al. 2016).
        catalog: The catalog for the parts. If None, the process's.
        defaults: Defaults that differ from the catalog's.

    Raises:
        CatalogError: The parts do not fit.
        NotServedError: The actions are neither a Discrete nor Boxes of floats with finite bounds;
            or the config selects a memory, another critic or, for continuous actions, a head or
            what does not encode the observation as a vector.

    Example:
        >>> import gymnasium as gym, torch
        >>> observations = gym.spaces.Box(-1, 1, (3,))
        >>> critic = build_action_critic(observations, gym.spaces.Box(-2, 2, (2,)))
        >>> critic(torch.zeros(5, 3), torch.zeros(5, 2)).shape
        torch.Size([5, 1])
        >>> q_net = build_action_critic(observations, gym.spaces.Discrete(4), dueling=True)
        >>> q_net(torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """
    trunk = build_critic_trunk(
        observation_space, action_space, config, "torch", catalog=catalog, defaults=defaults
    )
    return ActionCritic(trunk, num_outputs, dueling=dueling)
