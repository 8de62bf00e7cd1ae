"""Critics for the values of actions, Q(s, a), as DQN and SAC learn them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from gymnasium import Space

from rlcatalog import Catalog
from rlcatalog.catalog import CriticTrunk, build_critic_trunk
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Tensor
from rlcatalog.models import DenseSpec, set_weights_of, weights_of
from rlcatalog_tf.nn import Dense
from rlcatalog_tf.ops import flatten_rows


class ActionCritic(tf.Module):  # type: ignore[misc]
    """Critic for the values of actions: a trunk from the catalog, followed by a linear layer.

    Args:
        trunk: The trunk.
        num_outputs: Number of outputs for each action: 1 for a value, more for quantiles.
        dueling: Whether the outputs are advantages, to which the value of the observation is added.

    Attributes:
        preprocessor: Encodes the environment's observations for the critic.
        resolution: The choices for the trunk.

    Raises:
        NotServedError: These layers cannot follow the trunk.
    """

    def __init__(self, trunk: CriticTrunk, num_outputs: int = 1, *, dueling: bool = False) -> None:
        super().__init__(name="action_critic")
        self.preprocessor = trunk.preprocessor
        self.resolution = trunk.resolution
        self.trunk: Any = trunk.model
        self.num_choices = trunk.num_choices
        self.bounds = trunk.bounds
        trunk.check_layers(num_outputs, dueling=dueling)
        self.output: Dense | None = None
        if not trunk.has_values:
            self.output = Dense(trunk.width, _layer(num_outputs * (trunk.num_choices or 1)))
        self.value: Dense | None = None
        if dueling:
            self.value = Dense(trunk.width, _layer(1))

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables."""
        return (*self.trunk.variables(), *self._layer_weights().values())

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The variables that training changes."""
        return (*self.trunk.trainable_variables(), *self._layer_weights().values())

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """All other variables, such as batch-normalisation statistics."""
        trained = {id(variable) for variable in self.trainable_variables}
        return tuple(variable for variable in self.variables if id(variable) not in trained)

    def __call__(
        self,
        obs: Tensor,
        actions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        """Return the values of actions.

        Args:
            obs: Encoded observations `[B, ...]`.
            actions: For continuous actions: the actions `[B, ...]`, between their bounds. Those of
                a Tuple or Dict are rows `[B, k]`, as a policy's raw actions are. None for a
                Discrete.
            mask: For a dueling critic: whether each action is allowed, boolean `[B, n]`; None
                allows all. Forbidden actions do not count in the mean of the advantages.
            training: Whether layers such as dropout behave as in training.

        Returns:
            The outputs `[B, num_outputs]` for these actions or, for a Discrete with n actions, the
            outputs `[B, n * num_outputs]` for all actions.
        """
        inputs = {"obs": self._trunk_input(obs, actions), "is_training": training}
        no_state: list[Tensor] = []
        no_sequence_lengths = None
        features = self.trunk(inputs, no_state, no_sequence_lengths)[0]
        features = tf.cast(flatten_rows(features), tf.float32)
        outputs = features if self.output is None else self.output(features)
        if self.value is not None:
            outputs = dueling_values(outputs, self.value(features), mask)
        return outputs

    def _trunk_input(self, obs: Tensor, actions: Tensor | None) -> Any:
        """Return the observations or, for continuous actions, rows that end with the action."""
        obs = tf.convert_to_tensor(obs)
        if self.num_choices is not None:
            if actions is not None:
                raise NotServedError(
                    f"actions: this critic returns the values of all {self.num_choices} actions."
                    " Pass the observations alone, and select among its values."
                )
            return obs
        if actions is None:
            raise NotServedError("actions: a critic for continuous actions needs them.")
        assert self.bounds is not None
        rows = tf.cast(flatten_rows(obs), tf.float32)
        unscaled = tf.cast(tf.reshape(actions, [tf.shape(rows)[0], -1]), tf.float32)
        scaled = (unscaled - self.bounds.middle) / self.bounds.half_width
        return tf.concat([rows, scaled], axis=1)

    def _layer_weights(self) -> dict[str, Any]:
        """Return the variables of the last layers, by name."""
        weights = {}
        for name, layer in (("output", self.output), ("value", self.value)):
            if layer is not None:
                weights[f"{name}.kernel"] = layer.kernel
                weights[f"{name}.bias"] = layer.bias
        return weights

    def get_weights(self) -> dict[str, Any]:
        """Return all weights as arrays; the names and layouts are the same in PyTorch."""
        weights = {f"trunk.{name}": value for name, value in weights_of(self.trunk).items()}
        for name, variable in self._layer_weights().items():
            array = variable.numpy()
            # PyTorch's layout is [out, in].
            weights[name.replace("kernel", "weight")] = array.T if array.ndim == 2 else array
        return weights

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Set all weights from arrays with the names of `get_weights`."""
        of_trunk = {}
        for name, value in weights.items():
            if name.startswith("trunk."):
                of_trunk[name.removeprefix("trunk.")] = value
        set_weights_of(self.trunk, of_trunk)
        for name, variable in self._layer_weights().items():
            array = weights[name.replace("kernel", "weight")]
            variable.assign(array.T if array.ndim == 2 else array)


def _layer(size: int) -> DenseSpec:
    """Return a linear layer that starts like those of PyTorch."""
    return DenseSpec(size, weights="fan_in_uniform", bias="fan_in_uniform")


def dueling_values(advantages: Tensor, state_values: Tensor, allowed: Tensor | None = None) -> Any:
    """Return the Q-values `[B, n]` of a dueling network (Wang et al. 2016, equation 9).

    Q(s, a) = V(s) + A(s, a) - the mean of A(s, ·) over the allowed actions.

    Args:
        advantages: The outputs of a model for each action, A(s, ·), `[B, n]`.
        state_values: The value estimates of the same model, V(s), `[B]` or `[B, 1]`.
        allowed: Whether each action is allowed, boolean `[B, n]`. If None, all are.
    """
    if allowed is None:
        mean = tf.reduce_mean(advantages, axis=1, keepdims=True)
    else:
        weights = tf.cast(allowed, advantages.dtype)
        count = tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1)
        mean = tf.reduce_sum(weights * advantages, axis=1, keepdims=True) / count
    return advantages - mean + tf.reshape(state_values, [-1, 1])


def build_action_critic(
    observation_space: Space[Any],
    action_space: Space[Any],
    config: Mapping[str, Any] | None = None,
    *,
    num_outputs: int = 1,
    dueling: bool = False,
    catalog: Catalog | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> ActionCritic:
    """Build a critic for the values of actions from a model config.

    It is the critic that PyTorch's `build_action_critic` builds, in TensorFlow: for a Discrete it
    returns the values of all actions, and for a Box of floats, or a Tuple or Dict of them, the
    action is one more entry of the observation.

    Args:
        observation_space: The environment's observation space. The critic takes observations as
            `critic.preprocessor` or the `preprocess` of a policy with this config encodes them.
            An action mask in a Dict is not part of them.
        action_space: The environment's action space.
        config: The critic's model config.
        num_outputs: Number of outputs for each action.
        dueling: For a Discrete: whether the critic is a dueling network (Wang et al. 2016).
        catalog: The catalog for the parts. If None, the process's.
        defaults: Defaults that differ from the catalog's.

    Raises:
        CatalogError: The parts do not fit.
        NotServedError: The actions are neither a Discrete nor Boxes of floats with finite bounds;
            or the config selects a memory, another critic or, for continuous actions, a head or
            what does not encode the observation as a vector.

    Example:
        >>> import gymnasium as gym
        >>> observations = gym.spaces.Box(-1, 1, (3,))
        >>> critic = build_action_critic(observations, gym.spaces.Box(-2, 2, (2,)))
        >>> tuple(critic(np.zeros((5, 3), "f"), np.zeros((5, 2), "f")).shape)
        (5, 1)
    """
    trunk = build_critic_trunk(
        observation_space, action_space, config, "tf", catalog=catalog, defaults=defaults
    )
    return ActionCritic(trunk, num_outputs, dueling=dueling)
