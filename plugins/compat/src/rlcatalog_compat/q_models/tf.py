"""RLlib's Q-value model in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog_tf import TFModelV2, keras, tf


class DistributionalQTFModel(TFModelV2):
    """A base class: `forward` gives features `[B, num_outputs]`, and heads over them give Q-values.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: A Discrete.
        num_outputs: Width of the features; without `q_hiddens` they are the Q-values.
        model_config: The flat model config.
        name: A name for the model.
        q_hiddens: Sizes of the hidden layers of the heads.
        dueling: Whether there is a head for the state's value.
        num_atoms: Number of atoms of the distribution over returns; 1: Q-values alone.
        use_noisy: Noisy layers; not served.
        v_min: Smallest return of the distribution.
        v_max: Largest return.
        sigma0: For noisy layers.
        add_layer_norm: Whether the hidden layers are normalised.

    Raises:
        NotServedError: `use_noisy` is set.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
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
            raise NotServedError("DistributionalQTFModel: noisy layers are not served; leave use_noisy out.")
        self.dueling, self.num_atoms, self.v_min, self.v_max = dueling, num_atoms, v_min, v_max
        self.action_dim = int(action_space.n)
        width = int(num_outputs or 0)
        self.model_out = keras.layers.Input((width,))

        def head(outputs: int) -> Any:
            x = self.model_out
            for size in q_hiddens:
                x = keras.layers.Dense(size, activation="relu")(x)
                if add_layer_norm:
                    x = keras.layers.LayerNormalization()(x)
            return keras.Model(self.model_out, keras.layers.Dense(outputs)(x))

        self.q_value_head = head(self.action_dim * num_atoms) if q_hiddens else None
        self.state_value_head = head(num_atoms) if dueling else None

    def get_q_value_distributions(self, model_out: Any) -> list[Any]:
        """Return the head's answer for features `[B, num_outputs]`.

        Returns:
            Of one atom the scores `[B, n]`, and logits and probabilities `[B, n, 1]`; else Q-values `[B, n]`, the
            atoms' returns `[atoms]`, twice the logits `[B, n, atoms]`, and the probabilities.
        """
        scores = model_out if self.q_value_head is None else self.q_value_head(model_out)
        if self.num_atoms == 1:
            logits = tf.zeros_like(scores)[..., None]
            return [scores, logits, tf.ones_like(logits)]
        returns = tf.linspace(tf.cast(self.v_min, scores.dtype), self.v_max, self.num_atoms)
        logits = tf.reshape(scores, [-1, self.action_dim, self.num_atoms])
        probs = tf.nn.softmax(logits)
        return [tf.reduce_sum(returns * probs, -1), returns, logits, logits, probs]

    def get_state_value(self, model_out: Any) -> Any:
        """Return the state's value `[B, atoms]` for features `[B, num_outputs]`.

        Raises:
            NotServedError: The model was made without `dueling`.
        """
        if self.state_value_head is None:
            raise NotServedError("get_state_value() needs a model made with dueling=True.")
        return self.state_value_head(model_out)
