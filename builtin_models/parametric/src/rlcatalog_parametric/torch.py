"""Parametric actions in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog.actions import ActionMasks
from rlcatalog.models import last_values
from rlcatalog_parametric.config import plan
from rlcatalog_parametric.mask_columns import read
from rlcatalog_torch import OutputLayers, TorchModelV2, features_of, sequence_mask


class ParametricActionsHead(TorchModelV2):
    """Logits for actions that the observation describes: by embeddings, a mask, or both.

    `rest of the observation → trunk [B, w] → intent [B, E]`; an action's logit is the dot product of the intent with
    its embedding. Without embeddings the logits are a linear layer's. Where the model is shown a mask, what is
    forbidden is given the dtype's lowest finite value. The value reads the trunk's features, or those of a trunk of its
    own (`vf_share_layers=False`). With `num_outputs=None` and a mask alone, the trunk's features are handed on.

    Args:
        obs_space: See `TorchModelV2`.
        action_space: See `TorchModelV2`.
        num_outputs: See `TorchModelV2`.
        model_config: See `TorchModelV2`.
        name: See `TorchModelV2`.
        trunk: The model it is built around; it sees what the head leaves of the observation.
        value_trunk: Another one for the value, or None.
        action_dist: What makes the action distribution; it says what a mask does to its inputs.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
        *,
        trunk: TorchModelV2,
        value_trunk: TorchModelV2 | None,
        action_dist: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layout, self._shown, self._masks = read(obs_space, action_space, self.model_config)
        assert trunk.num_outputs is not None
        layers = plan(self.model_config, self.layout, trunk.num_outputs, num_outputs)
        self.num_outputs = layers.outputs if self.layout.embeddings is None else self.layout.actions
        self.action_dist = action_dist
        self.trunk = trunk
        self.value_trunk = None if num_outputs is None else value_trunk
        self.outputs = None if num_outputs is None else OutputLayers(layers)
        if self._shown is not None and self._shown.places is not None:
            self.register_buffer("places", torch.from_numpy(self._shown.places), persistent=False)
            self.register_buffer("forbidding", torch.from_numpy(self._shown.forbidding), persistent=False)
        self._features: Tensor | None = None

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        features, new_state = features_of(self.trunk, input_dict, state, seq_lens)
        outputs = self.outputs
        if outputs is None:
            return features, new_state
        self._features = features
        if self.value_trunk is not None:
            self._features, _ = features_of(self.value_trunk, input_dict, [], seq_lens)
        output, allowed = outputs(features), None
        if self._shown is not None or self.layout.listed:
            allowed = self._allowed(input_dict["obs"])
            if allowed is not None and self._masks is not None and not input_dict.get("values_only"):
                self._check(self._masks, allowed, seq_lens)
        if self.layout.embeddings is not None:
            output = self._compared(output, input_dict["obs"][self.layout.embeddings], allowed)
        return output if allowed is None else self.action_dist.masked(output, allowed), new_state

    def value_function(self) -> Tensor:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)  # type: ignore[no-any-return]

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()

    def _compared(self, intent: Tensor, shown: Any, allowed: Tensor | None) -> Tensor:
        """Return the dot products `[B, n]` of intents `[B, E]` with embeddings `[B, n, E]`."""
        embeddings = shown.values if self.layout.listed else shown
        if embeddings.dtype is not intent.dtype:
            embeddings = embeddings.to(intent.dtype)
        if allowed is not None:  # what stands for no action may be no number, which gradients would spread
            embeddings = torch.where(allowed.unsqueeze(2), embeddings, 0.0)
        return torch.bmm(embeddings, intent.unsqueeze(2)).squeeze(2)

    def _allowed(self, obs: Any) -> Tensor | None:
        """Return which values are allowed, booleans `[B, m]`; None where the observation does not say."""
        allowed: Tensor | None = None
        if self._shown is not None:
            leaves = self._shown.leaves(obs[self.layout.mask])
            values = (
                leaves[0].flatten(1) if len(leaves) == 1 else torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
            )
            allowed = values != 0 if self._shown.places is None else values[:, self.places] != self.forbidding
        if self.layout.listed:
            lengths = obs[self.layout.embeddings].lengths
            listed = torch.arange(self.layout.actions, device=lengths.device) < lengths.unsqueeze(1)
            allowed = listed if allowed is None else allowed & listed
        return allowed

    def _check(self, masks: ActionMasks, allowed: Tensor, seq_lens: Any) -> None:
        if torch.compiler.is_compiling():
            return
        rows = allowed.shape[0]
        if seq_lens is not None and seq_lens.shape[0] != rows:  # padding allows nothing
            allowed = allowed | ~sequence_mask(seq_lens, rows // seq_lens.shape[0]).view(rows, 1)
        masks.matrix(allowed.cpu().numpy())
