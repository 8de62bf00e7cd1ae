"""Critics for continuous actions: networks for Q(s, a), as SAC and TD3 learn them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlcatalog import Catalog, ModelV2, default_catalog
from rlcatalog.catalog import build_model
from rlcatalog.choice import Resolution
from rlcatalog.errors import NotServedError

#: The name of the action among the entries of a critic's observation.
ACTION = "action"


class ActionCritic(nn.Module):
    """Critic that sees the observation and the action, followed by a linear layer.

    Args:
        trunk: A catalog model without output layers, for rows that begin with the encoded
            observation and end with the action.
        num_outputs: Number of outputs: 1 for a value, more for quantiles.
    """

    def __init__(self, trunk: ModelV2, num_outputs: int) -> None:
        super().__init__()
        assert trunk.num_outputs is not None  # a trunk that is built knows its width
        self.trunk: Any = trunk
        self.output = nn.Linear(trunk.num_outputs, num_outputs)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the outputs `[B, num_outputs]`.

        Args:
            obs: Encoded observations `[B, ...]`.
            actions: Actions `[B, k]`, scaled to [-1, 1].
        """
        rows = torch.cat([obs.flatten(start_dim=1).float(), actions.flatten(start_dim=1)], dim=1)
        inputs = {"obs": rows, "is_training": self.training}
        no_state: list[Tensor] = []
        no_sequence_lengths = None
        features: Tensor = self.trunk(inputs, no_state, no_sequence_lengths)[0]
        outputs: Tensor = self.output(features.flatten(start_dim=1))
        return outputs


def build_action_critic(
    observation_space: Space[Any],
    action_size: int,
    config: Mapping[str, Any] | None = None,
    *,
    num_outputs: int = 1,
    catalog: Catalog | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> ActionCritic:
    """Build a critic for continuous actions from a model config.

    The action is one more entry of the observation, so any trunk fits: for a vector it is a dense
    network over both, and for a Dict with an image, the action joins the features of the image.

    Args:
        observation_space: The environment's observation space. The critic takes observations as
            the catalog's preprocessor for this space encodes them.
        action_size: Number of values of an action, k.
        config: The critic's model config.
        num_outputs: Number of outputs.
        catalog: The catalog for the parts. If None, the process's.
        defaults: Defaults that differ from the catalog's.

    Raises:
        CatalogError: The parts do not fit.
        NotServedError: The config selects a memory, a filter, a head or another critic, or the
            preprocessor does not encode the observation as a vector.

    Example:
        >>> import gymnasium as gym, torch
        >>> space = gym.spaces.Box(-1, 1, (3,))
        >>> critic = build_action_critic(space, 2, {"fcnet_hiddens": [64]})
        >>> critic(torch.zeros(5, 3), torch.zeros(5, 2)).shape
        torch.Size([5, 1])
    """
    chosen_catalog = default_catalog() if catalog is None else catalog
    # A lookup needs an action space, but a trunk does not depend on it.
    any_action_space = spaces.Discrete(2)

    def build(resolution: Resolution) -> ActionCritic:
        _refuse_all_but_trunk(resolution)
        preprocessor = chosen_catalog.preprocessor_for(resolution.request.obs, resolution.config)
        if len(preprocessor.shape) != 1:
            raise NotServedError(
                f"{resolution.request.obs.describe()}: a critic for continuous actions needs a"
                " preprocessor that encodes its observation as a vector; found the shape"
                f" {preprocessor.shape}. Remove custom_preprocessor and _disable_preprocessor_api"
                " from the critic's config."
            )
        trunk = build_model(
            {"trunk": resolution.part("trunk")},
            preprocessor.observation_space,
            action_space=None,
            num_outputs=None,  # the trunk's features
            config=resolution.config,
            framework="torch",
        )
        return ActionCritic(trunk, num_outputs)

    # If the trunk cannot be built with all defaults, the catalog calls the function again with
    # other parts or fewer defaults.
    critic: ActionCritic = chosen_catalog.build_from_lookup(
        build,
        space_with_action(observation_space, action_size),
        any_action_space,
        config,
        "torch",
        defaults=defaults,
    )
    return critic


def space_with_action(observation_space: Space[Any], action_size: int) -> spaces.Dict:
    """Return an observation space with the action, in [-1, 1], as its last entry."""
    entries: list[tuple[str, Space[Any]]] = [("obs", observation_space)]
    if isinstance(observation_space, spaces.Dict):
        entries = list(observation_space.spaces.items())
    name = ACTION
    while name in dict(entries):
        name += "_"  # the observation has an entry of this name already
    action = spaces.Box(-1.0, 1.0, (action_size,), np.float32)
    return spaces.Dict([*entries, (name, action)])


def _refuse_all_but_trunk(resolution: Resolution) -> None:
    """Reject parts that a critic for continuous actions cannot have.

    Raises:
        NotServedError: The config selects such a part.
    """
    for slot in ("filter", "memory", "head"):
        part = resolution.choices[slot].part
        if part is not None:
            raise NotServedError(
                f"critic: the {slot} {part.name!r} is not supported, because a critic for"
                " continuous actions is only a trunk. Remove the key that selects it."
            )
    if resolution.critic is not None:
        raise NotServedError("critic: a critic cannot have a critic of its own. Remove the key.")
