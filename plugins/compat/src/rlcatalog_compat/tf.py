"""RLlib's distributions, fully connected network and Q-value model in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium import Space
from gymnasium.spaces import Discrete

from rlcatalog import ActionDistribution, ModelV2
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Tensor
from rlcatalog_tf import FullyConnectedNetwork as _FullyConnectedNetwork, TFModelV2, keras, tf

# --- distributions --------------------------------------------------------------------------------


class TFActionDistribution(ActionDistribution):
    """Base class for distributions that sample in `_build_sample_op`.

    RLlib samples once, in the constructor; here, each call to `sample` draws a new sample.

    Args:
        inputs: Model output `[B, size]`.
        model: The model that computed the inputs, or None.
    """

    framework_of_class = "tf"

    def _build_sample_op(self) -> Any:
        """Sample raw actions. Subclasses implement this."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement _build_sample_op() or sample()."
        )

    def sample(self) -> Any:
        """Sample raw actions."""
        self.last_sample = self._build_sample_op()
        return self.last_sample

    @property
    def sample_op(self) -> Any:
        """The last sample, or a new one if there is none yet."""
        if self.last_sample is None:
            return self.sample()
        return self.last_sample

    @property
    def sampled_action_logp_op(self) -> Any:
        """Log density of the last sample."""
        return self.logp(self.sample_op)


def get_categorical_class_with_temperature(t: float) -> type:
    """Return a Categorical whose logits are divided by `t`."""
    from rlcatalog_tf import Categorical

    class CategoricalWithTemperature(Categorical):
        def __init__(
            self, inputs: Tensor, model: ModelV2 | None = None, temperature: float = t
        ) -> None:
            super().__init__(inputs, model, temperature)

    return CategoricalWithTemperature


# --- networks -------------------------------------------------------------------------------------


class FullyConnectedNetwork(_FullyConnectedNetwork):
    """RLlib's fully connected network, with the attribute `base_model`; it can be used inside a
    Keras model.

    When called with symbolic Keras tensors, it and `value_function()` return symbolic tensors.
    """

    def __call__(
        self,
        input_dict: Mapping[str, Any],
        state: list[Any] | None = None,
        seq_lens: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """Run the model on a batch; see `ModelV2`."""
        # Undo what the last pass over symbolic tensors did below.
        vars(self).pop("value_function", None)
        obs = input_dict["obs"]
        if not isinstance(obs, keras.KerasTensor):
            return super().__call__(input_dict, state, seq_lens)
        output, values = _as_layer(self)(obs)
        # The method is for passes over numeric tensors; hide it until the next such pass.
        vars(self)["value_function"] = partial(_same, values)
        return output, list(state or [])

    @property
    def base_model(self) -> _BaseModel:
        """The net as a Keras model: called with observations, it returns logits and values."""
        return _BaseModel(self)


def _same(values: Tensor) -> Tensor:
    """Return the values, as the `value_function` of a pass over symbolic tensors."""
    return values


class _BaseModel:
    """Interface that the Keras model inside RLlib's fully connected network has."""

    def __init__(self, net: FullyConnectedNetwork) -> None:
        self._net = net

    @property
    def variables(self) -> list[Any]:
        """All variables."""
        return list(self._net.variables())

    weights = variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable variables."""
        return list(self._net.trainable_variables())

    trainable_weights = trainable_variables

    def summary(self) -> None:
        """Print the variables and their shapes."""
        for name, variable in dict(self._net.variables(as_dict=True)).items():
            print(f"{name}: {tuple(variable.shape)}")

    def __call__(self, obs: Tensor, **kwargs: Any) -> Any:
        """Map observations `[B, n]` to logits `[B, num_outputs]` and values `[B, 1]`; a trunk maps
        them to features.
        """
        output, _ = self._net({"obs": obs, "obs_flat": obs}, state=[])
        if self._net.outputs is None:
            return output
        return output, self._net.value_function()[:, None]


def _as_layer(net: FullyConnectedNetwork) -> Any:
    """Return a net as a Keras layer that maps observations to logits and values, with the net's
    variables.
    """

    class AsLayer(keras.layers.Layer):  # type: ignore[misc]
        def call(self, obs: Tensor) -> Any:
            output, _ = net({"obs": obs})
            # By the class, because the instance may hide its method; see `__call__`.
            return output, type(net).value_function(net)

    return AsLayer(name=net.name)


# --- Q-values -------------------------------------------------------------------------------------


class DistributionalQTFModel(TFModelV2):
    """Base class for Q-value models: `forward` returns features `[B, num_outputs]`, and heads turn
    them into Q-values.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: A Discrete.
        num_outputs: Width of the features; without `q_hiddens`, the features are the Q-values.
        model_config: The flat model config.
        name: Name of the model.
        q_hiddens: Sizes of the heads' hidden layers.
        dueling: Whether to add a head for the state value.
        num_atoms: Number of atoms in the distribution over returns; 1 for plain Q-values.
        use_noisy: Noisy layers; not supported.
        v_min: Smallest return in the distribution's support.
        v_max: Largest return in the distribution's support.
        sigma0: Accepted for RLlib's signature; only noisy layers use it.
        add_layer_norm: Whether the hidden layers use layer normalisation.

    Raises:
        NotServedError: `use_noisy` is set.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Discrete,
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
        q_hiddens: Sequence[int] = (256,),
        dueling: bool = False,
        num_atoms: int = 1,
        use_noisy: bool = False,
        v_min: float = -10.0,
        v_max: float = 10.0,
        sigma0: float = 0.5,
        add_layer_norm: bool = False,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        if use_noisy:
            raise NotServedError(
                "DistributionalQTFModel: noisy layers are not supported; remove use_noisy."
            )
        self.dueling = dueling
        self.num_atoms = num_atoms
        self.v_min = v_min
        self.v_max = v_max
        self.action_dim = int(action_space.n)
        width = int(num_outputs or 0)
        self.model_out = keras.layers.Input((width,))

        def create_head(head_outputs: int) -> Any:
            x = self.model_out
            for size in q_hiddens:
                x = keras.layers.Dense(size, activation="relu")(x)
                if add_layer_norm:
                    x = keras.layers.LayerNormalization()(x)
            outputs = keras.layers.Dense(head_outputs)(x)
            return keras.Model(self.model_out, outputs)

        self.q_value_head: Any = None
        if q_hiddens:
            self.q_value_head = create_head(self.action_dim * num_atoms)
        self.state_value_head: Any = None
        if dueling:
            self.state_value_head = create_head(num_atoms)

    def get_q_value_distributions(self, model_out: Tensor) -> list[Any]:
        """Return the head's outputs for features `[B, num_outputs]`.

        Returns:
            With one atom, the scores `[B, n]`, and logits and probabilities `[B, n, 1]`. Otherwise,
            Q-values `[B, n]`, the atoms' returns `[atoms]`, the logits `[B, n, atoms]` twice, and
            the probabilities.
        """
        scores: Any = model_out
        if self.q_value_head is not None:
            scores = self.q_value_head(model_out)
        if self.num_atoms == 1:
            logits = tf.zeros_like(scores)[..., None]
            return [scores, logits, tf.ones_like(logits)]
        returns = tf.linspace(tf.cast(self.v_min, scores.dtype), self.v_max, self.num_atoms)
        logits = tf.reshape(scores, [-1, self.action_dim, self.num_atoms])
        probs = tf.nn.softmax(logits)
        return [tf.reduce_sum(returns * probs, -1), returns, logits, logits, probs]

    def get_state_value(self, model_out: Tensor) -> Any:
        """Return the state value `[B, atoms]` for features `[B, num_outputs]`.

        Raises:
            NotServedError: The model was created without `dueling`.
        """
        if self.state_value_head is None:
            raise NotServedError("get_state_value() needs a model with dueling=True.")
        return self.state_value_head(model_out)
