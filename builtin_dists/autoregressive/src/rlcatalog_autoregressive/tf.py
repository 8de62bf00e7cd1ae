"""The autoregressive head and its distribution in TensorFlow."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rlcatalog.errors import ActionMaskError
from rlcatalog.frameworks import tensor_ops
from rlcatalog.models import DenseSpec, last_values, output_plan
from rlcatalog_autoregressive.joint import JointDistribution
from rlcatalog_autoregressive.made.tf import Conditionals
from rlcatalog_autoregressive.part_columns import ActionPart
from rlcatalog_autoregressive.refusals import nothing_left, served_columns
from rlcatalog_tf import Dense, OutputLayers, TFModelV2, features_of, flatten_rows, tf


class AutoregressiveDistribution(JointDistribution):
    """P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "tf"
    ops = tensor_ops("tf")

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return the context in which actions are drawn: what parts draw has no gradient, nothing else need be cut."""
        return nullcontext()

    @staticmethod
    def differentiable() -> bool:
        """Whether a tape may be recording now that was not when actions were drawn; in a trace, one does for both."""
        return bool(tf.executing_eagerly())

    @staticmethod
    def check_allowed(mask: Any, params: Any, part: ActionPart) -> None:
        """Raise where a row leaves nothing of a part; what is forbidden in its parameters already counts.

        Raises:
            ActionMaskError: It names the row; inside a trace TensorFlow's own error does.
        """
        largest = params.dtype.max / 2
        free = params > -largest
        if part.bits:
            free = flatten_rows(tf.stack([params < largest, free], axis=2))
        if part.bits or part.masks.single:  # else parameters stand for combinations, and have no such columns
            mask = mask & free
        left = tf.stack([tf.reduce_any(choice, axis=1) for _, choice in part.masks.by_choice(mask)], axis=1)
        left = tf.reduce_all(left, axis=1)
        row = tf.argmin(tf.cast(left, tf.int32))
        if not tf.executing_eagerly():
            why = tf.strings.format(nothing_left("{}", part.path), row)
            tf.debugging.Assert(tf.reduce_all(left), [why])
        elif not bool(tf.reduce_all(left)):
            raise ActionMaskError(nothing_left(int(row), part.path))


class AutoregressiveModel(TFModelV2):
    """The head for actions whose parts depend on one another, around a trunk or a memory.

    The structure is the PyTorch model's, name by name.

    Args:
        obs_space: See `TFModelV2`.
        action_space: See `TFModelV2`.
        num_outputs: See `TFModelV2`; None: the trunk's features are passed on.
        model_config: See `TFModelV2`.
        name: See `TFModelV2`.
        trunk: The model it is built around.
        value_trunk: Another one for the value alone, or None.
        action_dist: The distribution it serves.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
        *,
        trunk: TFModelV2,
        value_trunk: TFModelV2 | None,
        action_dist: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk, self.value_trunk = trunk, value_trunk
        assert trunk.num_outputs is not None
        width = trunk.num_outputs
        self.outputs = None
        self._features: Any = None
        if num_outputs is None:
            self.num_outputs = width
            return
        layout = served_columns(action_dist, num_outputs)
        self.outputs = OutputLayers(output_plan(self.model_config, width, [], layout.params))
        self.to_context = Dense(width, DenseSpec(layout.hiddens[0]))
        self.conditionals = Conditionals(layout)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Compute the inputs of the distribution; see `ModelV2.forward`."""
        x, state = features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return x, state
        self._features = x
        if self.value_trunk is not None:
            self._features, _ = features_of(self.value_trunk, input_dict, [], None)
        return tf.concat([self.outputs(x), self.to_context(x)], axis=1), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()
