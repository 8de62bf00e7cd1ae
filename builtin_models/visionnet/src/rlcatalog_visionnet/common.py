"""Framework-independent code for the vision network.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

from typing import Any

from rlcatalog.models import ModelV2, last_values
from rlcatalog_visionnet.config import pixel_scaling
from rlcatalog_visionnet.plan import plan


class Vision(ModelV2):
    """Convolutions, followed by dense layers if configured, logits and a value.

    `images [B, H, W, C] → convolutions → features [B, n] → hidden layers → logits [B,
    num_outputs]`, and a value layer that reads the same features as the logits layer or, with
    `vf_share_layers=False`, a separate stack. When built as a trunk (`num_outputs=None`), the
    network ends with the hidden layers or, without them, with the features.

    Attributes:
        layout: Meaning of an image's axes.
        convs_class: The framework's `ConvStack`.
        stack_class: The framework's `DenseStack`.
        outputs_class: The framework's `OutputLayers`.
        logits_class: The framework's `ConvLogits`.
        scaled_class: The framework's `ScaledInput`.
    """

    convs_class: Any
    stack_class: Any
    outputs_class: Any
    logits_class: Any
    scaled_class: Any

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        layers = plan(self.model_config, obs_space.shape, num_outputs)
        end = layers.output
        self.num_outputs = end.outputs
        self.layout = layers.layout
        self.convs = self.convs_class(layers)
        # After the convolutions, because a model's dtype is found at once in a first layer with
        # weights.
        scaling = pixel_scaling(self.model_config, obs_space)
        self.scaled = None if scaling is None else self.scaled_class(scaling)
        self.hidden = self.stack_class(end.inputs, end.hidden)
        self.value_convs = self.value_hidden = self.outputs = None
        self._features: Any = None
        if num_outputs is not None:
            if not end.share:
                self.value_convs = self.convs_class(layers)
                self.value_hidden = self.stack_class(end.inputs, end.hidden)
            self.outputs = self.outputs_class(end)
            if layers.logits is not None:
                self.outputs.logits = self.logits_class(layers.logits)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        images = input_dict["obs"]
        if self.scaled is not None:
            images = self.scaled(images, like=self)
        images = self._ordered(images)
        features = self.hidden(self.convs(images))
        if self.outputs is None:
            return features, state
        self._features = features
        if self.value_convs is not None and self.value_hidden is not None:
            self._features = self.value_hidden(self.value_convs(images))
        return self.outputs(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def _ordered(self, images: Any) -> Any:
        """Return images as floats in the layout that the framework's convolutions expect, with the
        channels of all frames as one image's.
        """
        raise NotImplementedError
