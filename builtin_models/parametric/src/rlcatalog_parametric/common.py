"""Framework-independent code for parametric actions."""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import TensorOps
from rlcatalog.models import ModelV2, last_values
from rlcatalog_parametric.config import plan
from rlcatalog_parametric.mask_columns import read


class ParametricHead(ModelV2):
    """Head that computes logits for actions which the observation describes by embeddings, a mask,
    or both.

    `rest of the observation → trunk [B, w] → intent [B, E]`; an action's logit is the dot product
    of the intent with its embedding. Without embeddings, a linear layer computes the logits. If the
    model sees a mask, the logits of forbidden values become the dtype's lowest finite value. The
    value layer reads the trunk's features or, with `vf_share_layers=False`, a separate trunk's
    features. With `num_outputs=None` and only a mask, the model returns the trunk's features.

    Args:
        *args: See `ModelV2`.
        trunk: The wrapped model; it sees the parts of the observation that the head does not read.
        value_trunk: A separate trunk for the value function, or None.
        action_dist: Factory for the action distribution, which defines how a mask changes its
            inputs.

    Attributes:
        ops: The framework's tensor operations.
        outputs_class: The framework's `OutputLayers`.
    """

    ops: TensorOps
    outputs_class: Any

    def __init__(self, *args: Any, trunk: Any, value_trunk: Any, action_dist: Any) -> None:
        super().__init__(*args)
        num_outputs = self.num_outputs
        self.layout, self._shown, self._masks = read(
            self.obs_space, self.action_space, self.model_config
        )
        layers = plan(self.model_config, self.layout, trunk.num_outputs, num_outputs)
        self.num_outputs = layers.outputs if self.layout.embeddings is None else self.layout.actions
        self.action_dist = action_dist
        self.trunk = trunk
        self.value_trunk = None if num_outputs is None else value_trunk
        self.outputs = None if num_outputs is None else self.outputs_class(layers)
        self._features: Any = None
        self._keep_constants()

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        features, new_state = self.features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return features, new_state
        self._features = features
        if self.value_trunk is not None:
            self._features, _ = self.features_of(self.value_trunk, input_dict, [], seq_lens)
        output = self.outputs(features)
        allowed = self._allowed(input_dict["obs"]) if self.layout.claims else None
        if allowed is not None and self._masks is not None and not input_dict.get("values_only"):
            self._check(allowed, input_dict, seq_lens)
        if self.layout.embeddings is not None:
            shown = input_dict["obs"][self.layout.embeddings]
            embeddings = self.ops.cast(shown.values if self.layout.listed else shown, output.dtype)
            # Values of absent actions may be NaN, which gradients would spread.
            if allowed is not None:
                embeddings = self.ops.only(allowed, embeddings)
            output = self._products(embeddings, output)
        return output if allowed is None else self.action_dist.masked(output, allowed), new_state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()  # type: ignore[no-any-return]

    def _allowed(self, obs: Any) -> Any:
        """Return which values are allowed, as booleans `[B, m]`; None if the observation does not
        determine them.
        """
        allowed = (
            None
            if self._shown is None
            else self._unmasked(self._shown.leaves(obs[self.layout.mask]))
        )
        if self.layout.listed:
            listed = self.ops.taken(obs[self.layout.embeddings].lengths, self.layout.actions)
            allowed = listed if allowed is None else allowed & listed
        return allowed

    @staticmethod
    def features_of(
        trunk: Any, input_dict: Any, state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Run a trunk; each framework implements this method."""
        raise NotImplementedError

    def _keep_constants(self) -> None:
        """Store the constants of `_unmasked` on the model's device."""

    def _unmasked(self, leaves: list[Any]) -> Any:
        """Return which values a mask's tensors allow, as booleans `[B, m]`."""
        raise NotImplementedError

    def _products(self, embeddings: Any, intent: Any) -> Any:
        """Return the dot products `[B, n]` of embeddings `[B, n, E]` with intents `[B, E]`."""
        raise NotImplementedError

    def _check(self, allowed: Any, input_dict: dict[str, Any], seq_lens: Any) -> None:
        """Raise an error if a row allows no value."""
        raise NotImplementedError
