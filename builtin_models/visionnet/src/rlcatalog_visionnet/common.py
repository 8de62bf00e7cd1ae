"""Framework-independent code for the vision network.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog.frameworks import Tensor
from rlcatalog.models import ModelV2, last_values
from rlcatalog_visionnet.config import pixel_scaling
from rlcatalog_visionnet.plan import plan_layers

if TYPE_CHECKING:
    from gymnasium import Space


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
        input_scaling_class: The framework's `InputScaling`.
    """

    convs_class: Any
    stack_class: Any
    outputs_class: Any
    logits_class: Any
    input_scaling_class: Any

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any] | None,
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        network = plan_layers(self.model_config, obs_space.shape, num_outputs)
        output = network.output
        self.num_outputs = output.num_outputs
        self.layout = network.layout
        self.convs = self.convs_class(network)
        # After the convolutions: `dtype_of` looks at the layers in order and ends at the first
        # weight.
        scaling = pixel_scaling(self.model_config, obs_space)
        self.input_scaling = None if scaling is None else self.input_scaling_class(scaling)
        self.hidden = self.stack_class(output.num_inputs, output.hidden)
        self.value_convs = None
        self.value_hidden = None
        self.outputs = None
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None
        if num_outputs is None:
            return
        if not output.value_shares_hidden:
            # With vf_share_layers=False, the value has its own layers.
            self.value_convs = self.convs_class(network)
            self.value_hidden = self.stack_class(output.num_inputs, output.hidden)
        self.outputs = self.outputs_class(output)
        if network.logits is not None:
            # With no_final_linear, a convolution makes the logits.
            self.outputs.logits = self.logits_class(network.logits)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        images = input_dict["obs"]
        if self.input_scaling is not None:
            images = self.input_scaling(images, like=self)
        images = self._to_maps(images)
        features = self.hidden(self.convs(images))
        if self.outputs is None:
            return features, state
        if self.value_convs is None or self.value_hidden is None:
            self._features = features
        else:
            self._features = self.value_hidden(self.value_convs(images))
        return self.outputs(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def _to_maps(self, images: Any) -> Any:
        """Return images as floats in the layout that the framework's convolutions expect.

        The frames of a stack become channels of one image.
        """
        raise NotImplementedError
