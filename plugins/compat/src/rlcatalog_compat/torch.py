"""RLlib's layers, distributions and Q-value model in PyTorch, with RLlib's weight names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from gymnasium.spaces import Discrete
from numpy.typing import ArrayLike
from torch import Tensor, nn

from rlcatalog import ActionDistribution, ModelV2
from rlcatalog.errors import NotServedError
from rlcatalog_compat.arrays import pair
from rlcatalog_compat.frameworks import get_activation_fn
from rlcatalog_torch import TorchModelV2

# --- layers ---------------------------------------------------------------------------------------


#: Name of an activation, a callable that creates its module, or None.
Activation = str | Callable[[], nn.Module] | None
#: A function that fills a weight in place, or a word for one.
Initializer = str | Callable[[Tensor], Any] | None


def _activation(value: Activation) -> list[nn.Module]:
    """Return a list with the activation's module, or an empty list if there is no activation."""
    create_module = value
    if isinstance(value, str):
        create_module = get_activation_fn(value, "torch")
    if create_module is None:
        return []
    return [create_module()]  # type: ignore[operator]


class SlimFC(nn.Module):
    """Dense layer with an activation: `[..., in_size]` → `[..., out_size]`.

    Args:
        in_size: Width of the input.
        out_size: Width of the output.
        initializer: Function that fills the weight in place; Glorot uniform if None.
        activation_fn: A name, a callable that creates a module, or None for no activation.
        use_bias: Whether to add a bias.
        bias_init: Initial value of the bias.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        initializer: Callable[[Tensor], Any] | None = None,
        activation_fn: Activation = None,
        use_bias: bool = True,
        bias_init: float = 0.0,
    ) -> None:
        super().__init__()
        linear = nn.Linear(int(in_size), int(out_size), bias=use_bias)
        fill = initializer or nn.init.xavier_uniform_
        fill(linear.weight)
        if use_bias:
            nn.init.constant_(linear.bias, bias_init)
        self._model = nn.Sequential(linear, *_activation(activation_fn))

    def forward(self, x: Tensor) -> Tensor:
        """Map the input to the output."""
        y: Tensor = self._model(x)
        return y


class SlimConv2d(nn.Module):
    """Convolution with explicit padding and an activation: `[B, in, H, W]` → `[B, out, H', W']`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel: Size of the kernel.
        stride: Stride.
        padding: `(left, right, top, bottom)` as `same_padding` returns it, one number for all, or
            None.
        initializer: `"default"` for Glorot uniform, None for PyTorch's default, or a callable that
            fills the weight in place.
        activation_fn: `"default"` for ReLU, a name, a callable that creates a module, or None.
        bias_init: Initial value of the bias.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | tuple[int, int],
        stride: int | tuple[int, int],
        padding: int | tuple[int, int, int, int] | None,
        initializer: Initializer = "default",
        activation_fn: Activation = "default",
        bias_init: float = 0,
    ) -> None:
        super().__init__()
        conv = nn.Conv2d(in_channels, out_channels, pair(kernel), pair(stride))
        if initializer == "default":
            initializer = nn.init.xavier_uniform_
        if initializer is not None:
            initializer(conv.weight)  # type: ignore[operator]
        nn.init.constant_(conv.bias, bias_init)  # type: ignore[arg-type]
        if activation_fn == "default":
            activation_fn = nn.ReLU
        layers: list[nn.Module] = []
        if padding:
            layers.append(nn.ZeroPad2d(padding))
        layers.append(conv)
        layers += _activation(activation_fn)
        self._model = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map the images to the output."""
        y: Tensor = self._model(x)
        return y


class AppendBiasLayer(nn.Module):
    """Layer that appends a trainable vector to each row: `[B, n]` → `[B, n + num_bias_vars]`.

    Args:
        num_bias_vars: Width of the vector.
    """

    def __init__(self, num_bias_vars: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(num_bias_vars))

    def forward(self, x: Tensor) -> Tensor:
        """Append the vector."""
        return torch.cat([x, self.log_std.expand(len(x), -1)], dim=1)


class Reshape(nn.Module):
    """Layer that reshapes tensors.

    Args:
        shape: The new shape.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` with the new shape."""
        return x.view(*self.shape)


class SkipConnection(nn.Module):
    """Skip connection around a layer, which adds the input to the output or combines them with a
    gate.

    Args:
        layer: The layer.
        fan_in_layer: Function of the input and the output; if None, they are added.
        add_memory: Whether the layer takes a `memory`.
    """

    def __init__(
        self,
        layer: nn.Module,
        fan_in_layer: Callable[[tuple[Tensor, Tensor]], Tensor] | None = None,
        add_memory: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self._layer = layer
        self._fan_in_layer = fan_in_layer

    def forward(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        """Run the layer and combine its output with its input."""
        outputs: Tensor = self._layer(inputs, **kwargs)
        if self._fan_in_layer is None:
            return outputs + inputs
        return self._fan_in_layer((inputs, outputs))


class Swish(nn.Module):
    """`x` times the logistic function of `x` with a trainable slope; RLlib used it before PyTorch
    had SiLU.
    """

    def __init__(self) -> None:
        super().__init__()
        self._beta = nn.Parameter(torch.tensor(1.0))

    def forward(self, input_tensor: Tensor) -> Tensor:
        """Apply the activation elementwise."""
        return input_tensor * torch.sigmoid(self._beta * input_tensor)


class ConvTranspose2DStack(nn.Module):
    """Dense layer and transposed convolutions that turn vectors into images: `[B, input_size]` → a
    distribution.

    Args:
        input_size: Width of the input.
        filters: `(channels, kernel, stride)` for each transposed convolution, where `channels`
            counts its input channels.
        initializer: `"default"` for Glorot uniform, or a callable that fills a weight in place.
        bias_init: Initial value of the biases.
        activation_fn: Activation between the convolutions: a name or a callable.
        output_shape: The images' channels, height and width.
    """

    def __init__(
        self,
        *,
        input_size: int,
        filters: Sequence[tuple[int, int, int]] = (
            (1024, 5, 2),
            (128, 5, 2),
            (64, 6, 2),
            (32, 6, 2),
        ),
        initializer: Initializer = "default",
        bias_init: float = 0,
        activation_fn: Activation = "relu",
        output_shape: Sequence[int] = (3, 64, 64),
    ) -> None:
        super().__init__()
        if initializer in ("default", None):
            initializer = nn.init.xavier_uniform_
        self.output_shape = tuple(output_shape)
        in_channels = [width for width, _, _ in filters]
        out_channels = [*in_channels[1:], self.output_shape[0]]
        layers: list[nn.Module] = [
            nn.Linear(input_size, in_channels[0]),
            nn.Unflatten(1, (in_channels[0], 1, 1)),
        ]
        last = len(filters) - 1
        for index, (width, kernel, stride) in enumerate(filters):
            layers.append(nn.ConvTranspose2d(width, out_channels[index], kernel, stride))
            if index < last:
                layers += _activation(activation_fn)
        for layer in layers:
            if isinstance(layer, nn.Linear | nn.ConvTranspose2d):
                initializer(layer.weight)  # type: ignore[operator]
                assert layer.bias is not None
                nn.init.constant_(layer.bias, bias_init)
        self._model = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> torch.distributions.Distribution:
        """Return normal distributions with standard deviation 1 around the images; each image is
        one event.
        """
        mean = self._model(x).reshape(-1, *self.output_shape)
        return torch.distributions.Independent(
            torch.distributions.Normal(mean, 1), len(self.output_shape)
        )


# --- distributions --------------------------------------------------------------------------------


class TorchDistributionWrapper(ActionDistribution):
    """Base class for distributions that wrap one from `torch.distributions`: set `self.dist` in the
    constructor.

    Args:
        inputs: Model output `[B, size]`; arrays become tensors.
        model: The model that computed the inputs, or None.
    """

    dist: Any
    framework_of_class = "torch"

    def __init__(self, inputs: Tensor | ArrayLike, model: ModelV2 | None = None) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs, model)

    def sample(self) -> Any:
        """Sample raw actions."""
        self.last_sample = self.dist.sample()
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
        """Return the log density `[B]` of raw actions."""
        return self.dist.log_prob(actions)

    def entropy(self) -> Any:
        """Return the entropy `[B]`."""
        return self.dist.entropy()

    def kl(self, other: ActionDistribution) -> Any:
        """Return the divergence from another distribution of the same kind, `[B]`."""
        return torch.distributions.kl.kl_divergence(self.dist, other.dist)  # type: ignore[attr-defined]


def get_torch_categorical_class_with_temperature(t: float) -> type:
    """Return a Categorical whose logits are divided by `t`."""
    from rlcatalog_torch import Categorical

    class TorchCategoricalWithTemperature(Categorical):
        def __init__(
            self, inputs: Tensor, model: ModelV2 | None = None, temperature: float = t
        ) -> None:
            super().__init__(inputs, model, temperature)

    return TorchCategoricalWithTemperature


# --- Q-values -------------------------------------------------------------------------------------


class DQNTorchModel(TorchModelV2):
    """Base class for Q-value models: `forward` returns features `[B, num_outputs]`, and heads turn
    them into Q-values.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: A Discrete.
        num_outputs: Width of the features; without `q_hiddens` and `dueling`, the features are the
            Q-values.
        model_config: The flat model config.
        name: Name of the model.
        q_hiddens: Sizes of the heads' hidden layers.
        dueling: Whether to add a head for the state value.
        dueling_activation: Activation of the hidden layers.
        num_atoms: Number of atoms in the distribution over returns; 1 for plain Q-values.
        use_noisy: Noisy layers; not supported.
        v_min: Smallest return in the distribution's support.
        v_max: Largest return in the distribution's support.
        sigma0: Accepted for RLlib's signature; only noisy layers use it.
        add_layer_norm: Whether hidden layers use layer normalisation.

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
        *,
        q_hiddens: Sequence[int] = (256,),
        dueling: bool = False,
        dueling_activation: str = "relu",
        num_atoms: int = 1,
        use_noisy: bool = False,
        v_min: float = -10.0,
        v_max: float = 10.0,
        sigma0: float = 0.5,
        add_layer_norm: bool = False,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        if use_noisy:
            raise NotServedError("DQNTorchModel: noisy layers are not supported; remove use_noisy.")
        self.dueling = dueling
        self.num_atoms = num_atoms
        self.v_min = v_min
        self.v_max = v_max
        self.action_dim = int(action_space.n)

        def create_head(letter: str, head_outputs: int) -> nn.Sequential:
            """Return a head whose layers have RLlib's names, which contain the letter."""
            head = nn.Sequential()
            width = int(num_outputs or 0)
            for index, size in enumerate(q_hiddens):
                hidden_layer = SlimFC(width, size, activation_fn=dueling_activation)
                head.add_module(f"dueling_{letter}_{index}", hidden_layer)
                if add_layer_norm:
                    head.add_module(f"LayerNorm_{letter}_{index}", nn.LayerNorm(size))
                width = size
            head.add_module(letter, SlimFC(width, head_outputs))
            return head

        self.advantage_module = nn.Sequential()
        if q_hiddens:
            self.advantage_module = create_head("A", self.action_dim * num_atoms)
        self.value_module: nn.Sequential | None = None
        if dueling:
            self.value_module = create_head("V", num_atoms)

    def get_q_value_distributions(self, model_out: Tensor) -> tuple[Tensor, ...]:
        """Return the head's outputs for features `[B, num_outputs]`.

        Returns:
            With one atom, the scores `[B, n]` and two tensors of ones. Otherwise, Q-values
            `[B, n]`, the atoms' returns `[atoms]`, the logits `[B, n, atoms]` twice, and the
            probabilities.
        """
        scores: Tensor = self.advantage_module(model_out)
        if self.num_atoms == 1:
            return scores, torch.ones_like(scores), torch.ones_like(scores)
        returns = torch.linspace(self.v_min, self.v_max, self.num_atoms, device=scores.device)
        logits = scores.view(-1, self.action_dim, self.num_atoms)
        probs = logits.softmax(-1)
        return (returns * probs).sum(-1), returns, logits, logits, probs

    def get_state_value(self, model_out: Tensor) -> Tensor:
        """Return the state value `[B, atoms]` for features `[B, num_outputs]`.

        Raises:
            NotServedError: The model was created without `dueling`.
        """
        if self.value_module is None:
            raise NotServedError("get_state_value() needs a model with dueling=True.")
        value: Tensor = self.value_module(model_out)
        return value
