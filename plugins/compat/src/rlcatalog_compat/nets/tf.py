"""RLlib's fully connected network in TensorFlow, whose layers were one Keras model."""

from __future__ import annotations

from typing import Any

from rlcatalog_tf import FullyConnectedNetwork as _FullyConnectedNetwork, keras


class FullyConnectedNetwork(_FullyConnectedNetwork):
    """The fully connected network, with `base_model` beside it; it may be part of a Keras model.

    Called with Keras' symbolic tensors it answers with such, and so does `value_function()` after that.
    """

    def __call__(self, input_dict: Any, state: Any = None, seq_lens: Any = None) -> tuple[Any, list[Any]]:
        """Run the model on a batch; see `ModelV2`."""
        self.__dict__.pop("value_function", None)
        if not isinstance(input_dict["obs"], keras.KerasTensor):
            return super().__call__(input_dict, state, seq_lens)
        output, values = _layer(self)(input_dict["obs"])
        # The method answers for passes over numbers; this hides it until the next one.
        self.__dict__["value_function"] = lambda: values
        return output, list(state or [])

    @property
    def base_model(self) -> _BaseModel:
        """The net by itself: called with observations, it returns logits and values."""
        return _BaseModel(self)


class _BaseModel:
    """What models of RLlib's ask of the Keras model inside a fully connected network."""

    def __init__(self, net: FullyConnectedNetwork) -> None:
        self._net = net

    @property
    def variables(self) -> list[Any]:
        """All variables."""
        return list(self._net.variables())

    weights = variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that are trained."""
        return list(self._net.trainable_variables())

    trainable_weights = trainable_variables

    def summary(self) -> None:
        """Print the variables and their shapes."""
        for name, variable in dict(self._net.variables(as_dict=True)).items():
            print(f"{name}: {tuple(variable.shape)}")

    def __call__(self, obs: Any, **kwargs: Any) -> Any:
        """Map observations `[B, n]` to logits `[B, num_outputs]` and values `[B, 1]`; of a trunk to its features."""
        output, _ = self._net({"obs": obs, "obs_flat": obs}, [], None)
        if self._net.outputs is None:
            return output
        return output, self._net.value_function()[:, None]


def _layer(net: FullyConnectedNetwork) -> Any:
    """Return a net as a Keras layer, from observations to logits and values; its variables stay the net's."""

    class AsLayer(keras.layers.Layer):  # type: ignore[misc]
        def call(self, obs: Any) -> Any:
            output, _ = net({"obs": obs})
            return output, type(net).value_function(net)

    return AsLayer(name=net.name)
