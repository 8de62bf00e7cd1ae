"""Framework-independent code for parametric actions."""

from __future__ import annotations

from typing import Any

from rlcatalog.actions import ActionDistribution, BoundDistribution
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.models import ModelV2, last_values
from rlcatalog_parametric.config import plan_layers
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

    def __init__(
        self,
        *args: Any,
        trunk: ModelV2,
        value_trunk: ModelV2 | None,
        action_dist: type[ActionDistribution] | BoundDistribution | None,
    ) -> None:
        super().__init__(*args)
        reader = read(self.obs_space, self.action_space, self.model_config)
        self.layout = reader.layout
        self._mask = reader.mask
        #: The check that each row allows an action, or None.
        self._row_check = reader.row_check
        assert trunk.num_outputs is not None, "the catalog checks a trunk before it wraps it"
        has_outputs = self.num_outputs is not None
        layers = plan_layers(self.model_config, self.layout, trunk.num_outputs, self.num_outputs)
        self.num_outputs = layers.num_outputs
        if self.layout.embeddings_key is not None:
            # The last layer's outputs are the intent. Its dot product with each action's embedding
            # is the action's logit.
            self.num_outputs = self.layout.actions
        self.action_dist = action_dist
        self.trunk = trunk
        self.value_trunk = None
        self.outputs = None
        if has_outputs:
            self.value_trunk = value_trunk
            self.outputs = self.outputs_class(layers)
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None
        self._register_constants()

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        features, new_state = self.features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return features, new_state
        if self.value_trunk is None:
            self._features = features
        else:
            self._features, _ = self.features_of(
                self.value_trunk, input_dict, state=[], seq_lens=seq_lens
            )
        output = self.outputs(features)
        obs = input_dict["obs"]
        allowed = self._allowed(obs)
        # If only values are needed, no action is chosen, and a row need not allow any.
        chooses_action = not input_dict.get("values_only")
        if allowed is not None and self._row_check is not None and chooses_action:
            self._check_rows(allowed, input_dict, seq_lens)
        if self.layout.embeddings_key is not None:
            embeddings = obs[self.layout.embeddings_key]
            if self.layout.is_list:
                embeddings = embeddings.values  # without the list's length
            embeddings = self.ops.cast(embeddings, output.dtype)
            if allowed is not None:
                # Values of absent actions may be NaN, which gradients would spread.
                embeddings = self.ops.only(allowed, embeddings)
            output = self._products(embeddings, output)
        if allowed is not None:
            assert self.action_dist is not None, "the catalog passes one to every head"
            output = self.action_dist.masked(output, allowed)
        return output, new_state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()

    def _allowed(self, obs: Any) -> Any:
        """Return which values are allowed, as booleans `[B, m]`; None if the observation does not
        determine them.
        """
        allowed = None
        if self._mask is not None:
            allowed = self._read_mask(self._mask.leaves(obs[self.layout.mask_key]))
        if self.layout.is_list:
            is_in_list = self.ops.taken(
                obs[self.layout.embeddings_key].lengths, self.layout.actions
            )
            allowed = is_in_list if allowed is None else allowed & is_in_list
        return allowed

    @staticmethod
    def features_of(
        trunk: ModelV2, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Run a trunk; each framework implements this method."""
        raise NotImplementedError

    def _register_constants(self) -> None:
        """Store the constants of `_read_mask` on the model's device."""

    def _read_mask(self, leaves: list[Any]) -> Any:
        """Return which values a mask's tensors allow, as booleans `[B, m]`."""
        raise NotImplementedError

    def _products(self, embeddings: Tensor, intent: Tensor) -> Any:
        """Return the dot products `[B, n]` of embeddings `[B, n, E]` with intents `[B, E]`."""
        raise NotImplementedError

    def _check_rows(
        self, allowed: Tensor, input_dict: dict[str, Any], seq_lens: Tensor | None
    ) -> None:
        """Raise an error if a row allows no value."""
        raise NotImplementedError
