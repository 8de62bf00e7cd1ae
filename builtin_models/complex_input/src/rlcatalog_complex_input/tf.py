"""The complex-input network in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import tensor_ops
from rlcatalog.models import last_values
from rlcatalog.observations import is_structure
from rlcatalog_complex_input.building import NetsInside, build_nets, plan_for
from rlcatalog_complex_input.config import ending
from rlcatalog_complex_input.parts import Inputs, features, read, width
from rlcatalog_complex_input.planning import Net, OneHot
from rlcatalog_tf import DenseStack, OutputLayers, TFModelV2, tf

_OPS = tensor_ops("tf")


class ComplexInputNetwork(NetsInside, TFModelV2):
    """A net for each part of the observation; the structure is the PyTorch network's, name by name."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int | None, model_config: Any, name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        plan = plan_for(self)
        self._complex_input_parts = plan.parts
        self.__from_columns = any(part.columns is not None for part in plan.parts)
        self.__hots = [_Hot(hot) for hot in plan.hots]
        self.nets = self.__built(plan.nets, "net")
        layers = ending(self.model_config, width(plan.parts, self.nets), num_outputs)
        self.num_outputs = layers.outputs
        self.hidden = DenseStack(layers.inputs, layers.hidden)
        self.value_nets = self.value_hidden = self.outputs = None
        self._features: Any = None
        if num_outputs is not None:
            if not layers.share:
                self.value_nets = self.__built(plan.nets, "value_net")
                self.value_hidden = DenseStack(layers.inputs, layers.hidden)
            self.outputs = OutputLayers(layers)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        flat = input_dict["obs_flat"] if self.__from_columns else None
        flat = None if is_structure(flat) else flat
        inputs = read(self._complex_input_parts, input_dict["obs"], flat, _OPS, tf.float32, self.__hots)
        is_training = input_dict.get("is_training", False)
        found = self.hidden(self.__joined(self.nets, inputs, is_training))
        if self.outputs is None:
            return found, state
        self._features = found
        if self.value_nets is not None and self.value_hidden is not None:
            self._features = self.value_hidden(self.__joined(self.value_nets, inputs, is_training))
        return self.outputs(found), state

    def __joined(self, nets: list[Any], inputs: Inputs, is_training: Any) -> Any:
        return tf.cast(features(self._complex_input_parts, inputs, nets, _OPS, is_training), tf.float32)

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def __built(self, nets: tuple[Net, ...], name: str) -> list[Any]:
        made = build_nets(self, nets, f"{self.name}_{name}")
        for net, one in zip(nets, made, strict=True):
            # Keras layers make their variables at the first call, which must not be inside a `tf.function`.
            if any(getattr(value, "built", True) is False for value in vars(one).values()):
                one({"obs": tf.zeros([1, *net.part.shape]), "is_training": False})
        return made


class _Hot:
    """One-hots of integers `[N, *shape]`, as `[N, n]`."""

    def __init__(self, hot: OneHot) -> None:
        self.entries, self.values = hot.entries, hot.values

    def __call__(self, x: Any) -> Any:
        """Set one column per entry."""
        x = tf.reshape(tf.cast(x, tf.int64), [-1, int(self.entries[-1]) + 1])
        return tf.cast(tf.gather(x, self.entries, axis=1) == self.values, tf.float32)
