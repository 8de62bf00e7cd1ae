"""Framework-independent code for using plain modules as models.

Each framework's `PlainModel` inherits from `Plain` first and then from the framework's base class
for models.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Tuple

from rlcatalog import SpaceInfo
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    ModelContractError,
    NotServedError,
    raised_as,
)
from rlcatalog.frameworks import Array, Tensor, TensorTree, ops_of, tensor_ops
from rlcatalog.models import DensePlan, last_values, plan_dense_layers, post_fcnet
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.spaces import ImageLayout, is_image, read_layout
from rlcatalog_plain.module_source import ModelOfModule, Module, describe_space

#: Keys of the layers after a module's features. A module that returns logits and value itself has
#: no such layers.
_KEYS_OF_LAYERS = ("post_fcnet_hiddens", "free_log_std", "no_final_linear")
#: Advice for modules with a state.
_WAY_TO_MEMORY = (
    "A plain module has no state: set use_lstm, use_gru or use_attention to put a memory after it,"
    " pass a recurrent layer as memory=, or derive it from RecurrentNetwork (RLlib's form). A"
    " module that returns logits and value takes num_outputs."
)


class Plain(ModelOfModule):
    """Plain module that maps observations to features, followed by dense layers, logits and a
    value.

    `observations → module → features [B, F] → post_fcnet layers → logits [B, num_outputs]`, and a
    value layer that reads the same features as the logits or, with `vf_share_layers=False`, a
    second module's features. When built as a trunk (`num_outputs=None`), the model ends with the
    features. If the class or factory takes `num_outputs`, its module returns the logits and the
    value itself.

    Each framework's class also implements the methods that raise NotImplementedError here.

    Args:
        *args: See `ModelV2`.
        **options: Keyword arguments for the class or factory, from `custom_model_config`.

    Attributes:
        input_space: Space for the module's input, without the batch axis.
        module: The module.
        hidden: The `post_fcnet` layers, or None.
        outputs: The layers for logits and value, or None.
        value_module: The value's own module, or None.
        value_hidden: The `post_fcnet` layers after it, or None.
        stack_class: The framework's `DenseStack`.
        outputs_class: The framework's `OutputLayers`.
        channels_first: Whether the framework's convolutions expect channels first.

    Raises:
        ConfigError: An argument is unknown or missing, or a key has no effect here.
        ModelContractError: The module does not return features.
        NotServedError: The module has a recurrent state.
    """

    options_key = "custom_model_config"
    stack_class: Any
    outputs_class: Any
    channels_first: bool

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args)
        examples = _example_rows(self.obs_space)
        module_input = self._read_input(examples)
        self.input_space = module_input.space
        self._conversion = module_input.conversion
        self._returns_outputs = self._must_return_outputs()
        self._check_config()
        self.module = self.make_module(options)
        width = self._measure_width(self.module, examples)
        self.hidden: Any = None
        self.value_module: Any = None
        self.value_hidden: Any = None
        self.outputs: Any = None
        #: What the value layer reads; for a module that returns the value itself, this value.
        self._features: Any = None
        if self._returns_outputs:
            return  # no layers follow a module that returns logits and value
        config = self.model_config
        layers = plan_dense_layers(
            config, width, hidden=post_fcnet(config), num_outputs=self.num_outputs
        )
        self.num_outputs = layers.num_outputs
        self.hidden = self._make_hidden(layers)
        if layers.logits is None:
            return
        self.outputs = self.outputs_class(layers)
        if not layers.value_shares_hidden:
            # With vf_share_layers=False, the value has a second module.
            self.value_module = self.make_module(options)
            # Its first run creates the weights of lazy layers, as it did for the policy's module.
            self._measure_width(self.value_module, examples)
            self.value_hidden = self._make_hidden(layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs"]
        if self._conversion is not None:
            x = _convert(x, self._conversion, self)
        features = self.run_module(self.module, x, input_dict)
        if self._returns_outputs:
            # The module returns logits and the value.
            outputs, self._features = features
            return outputs, state
        if self.hidden is not None:
            features = self.hidden(features)
        output_layers = self.outputs
        if output_layers is None:
            return features, state
        self._features = features
        if self.value_module is not None:
            value_features = self.run_module(self.value_module, x, input_dict)
            if self.value_hidden is not None:
                value_features = self.value_hidden(value_features)
            self._features = value_features
        return output_layers(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        features = self._features
        if features is None:
            return last_values(self, features)
        if self._returns_outputs:
            return features
        return self.outputs.values(features)

    def show(self, encoded: Tensor) -> Any:
        """Convert a tensor of encoded observations to what the module sees."""
        obs: Any = encoded
        codec = _structured_codec(self.obs_space)
        if codec is not None:
            obs = codec.restore(encoded, tensor_ops(self.framework))
        return _convert(obs, self._conversion, self)

    # --- methods of each framework's class --------------------------------------------------------

    def run_module(self, module: Module, x: TensorTree, inputs: Mapping[str, Any]) -> Any:
        """Return a module's outputs for its input `x`, a part of the model's `inputs`."""
        raise NotImplementedError

    def try_module(self, module: Any, rows: Array) -> Any:
        """Run a module in eval mode and without side effects, on what `show` makes of encoded
        observations `[2, ...]`.
        """
        raise NotImplementedError

    def convert_leaf(self, x: Any, leaf: Leaf) -> Any:
        """Return a leaf of the observation `[B, ...]` as the module sees it."""
        raise NotImplementedError

    # --- what a class or factory is called with ---------------------------------------------------

    def first_arguments(
        self, signature: inspect.Signature, keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Return the space of the module's input, if the class or factory takes it."""
        if _takes_space(signature, keywords):
            return [self.input_space]
        return []

    def more_keywords(self) -> dict[str, Any]:
        """Return the number of outputs, for a module that returns logits and value itself."""
        if self._returns_outputs:
            return {"num_outputs": self.num_outputs}
        return {}

    # --- internals --------------------------------------------------------------------------------

    def _read_input(self, examples: Array) -> ModuleInput:
        """Return the space of the module's input, and how observations are converted to it."""
        if not isinstance(self.obs_space, Box):
            return ModuleInput(self.obs_space, conversion=None)
        config = self.model_config
        rule = _ConversionRule(
            is_on=config.get("module_images") != "as_is",  # "as_is" converts nothing
            channels_first=self.channels_first,
            image_layout=config.get("image_layout"),
        )
        codec = _structured_codec(self.obs_space)
        if codec is None:
            return _read_leaf(examples, SpaceInfo.read(self.obs_space), rule)
        return _read_parts(codec.restore(examples, tensor_ops("numpy")), codec.info, rule)

    def _must_return_outputs(self) -> bool:
        """Return whether the module gets `num_outputs`, and then returns logits and value itself.

        A module in a trunk gets no `num_outputs` if its class or factory has a default for it; it
        then returns features.
        """
        if self.is_instance:
            return False
        parameter = inspect.signature(self.source).parameters.get("num_outputs")
        if parameter is None:
            return False
        return self.num_outputs is not None or parameter.default is parameter.empty

    def _check_config(self) -> None:
        """Raise an error if the config requests features that this module does not support."""
        name = type(self).__name__
        if self.is_instance and not self.model_config.get("vf_share_layers", True):
            raise ConfigError(
                f"vf_share_layers=False: the value needs a second module, but {name} is an"
                " instance. Pass its class, or a function that creates one."
            )
        if not self._returns_outputs:
            return
        conflict = (
            f"{name} takes num_outputs, so it returns logits and value itself. Remove its"
            " num_outputs argument, or"
        )
        if self.num_outputs is None:
            raise NotServedError(
                f"a memory or a head needs features [B, F], but {conflict} the memory or head."
            )
        keys = self._keys_of_layers()
        if keys:
            value = self.model_config[keys[0]]
            raise ConfigError(f"{keys[0]}={value!r} has no effect: {conflict} {keys[0]}.")

    def _keys_of_layers(self) -> list[str]:
        """Return the keys in the config that ask for layers after a module's features."""
        keys = [key for key in _KEYS_OF_LAYERS if self.model_config.get(key)]
        if not self.model_config.get("vf_share_layers", True):
            keys.append("vf_share_layers")
        return keys

    def _make_hidden(self, layers: DensePlan) -> Any:
        """Return new `post_fcnet` layers, or None if the config has none."""
        if not layers.hidden:
            return None
        return self.stack_class(layers.num_inputs, layers.hidden)

    def _measure_width(self, module: Module, examples: Array) -> int:
        """Run a module on two observations, and return the width of its features or of its logits.

        Raises:
            NotServedError: The module takes `seq_lens`.
            ModelContractError: It raises an error, or returns something else.
        """
        name = type(self).__name__
        occasion = f"for a batch of two observations of {describe_space(self.input_space)}"
        if _takes_seq_lens(module):
            raise NotServedError(f"{name}: its forward method takes seq_lens. {_WAY_TO_MEMORY}")
        with raised_as(
            lambda why: ModelContractError(f"{name} raised {why}, {occasion}."), CatalogError
        ):
            two_observations = examples[:1].repeat(2, axis=0)
            output = self.try_module(module, two_observations)
        is_single = not isinstance(output, tuple | list)
        parts = [output] if is_single else list(output)
        width = self._width_of(parts[0]) if parts else 0
        if self._returns_outputs:
            other_shapes = [_shape_of(part) for part in parts[1:]]
            # The only other part is the value of both observations.
            has_value = other_shapes in ([(2,)], [(2, 1)])
            if width == self.num_outputs and has_value:
                return width
        elif width and is_single:
            return width
        raise ModelContractError(
            f"{name} must return {self._expected_outputs()}, found {_describe_parts(parts)},"
            f" {occasion}.{self._advice_on_outputs(parts, is_single)}"
        )

    def _width_of(self, part: Any) -> int:
        """Return the width of features for two observations; 0 for any other part of an output."""
        shape = _shape_of(part)
        if len(shape) != 2 or shape[0] != 2:
            return 0
        # A NumPy array, for example, carries no gradient.
        if ops_of(part).framework != self.framework:
            return 0
        if not tensor_ops(self.framework).is_float(part):
            return 0
        return int(shape[1])

    def _expected_outputs(self) -> str:
        """Return what the module must return, for an error message."""
        if self._returns_outputs:
            return (
                f"outputs of shape (batch size, {self.num_outputs}) and values of shape"
                " (batch size,) or (batch size, 1), because it takes num_outputs"
            )
        return "only floating-point features, of shape (batch size, number of features)"

    def _advice_on_outputs(self, parts: Sequence[Any], is_single: bool) -> str:
        """Return the last sentence of the message on an output that is not accepted."""
        # Parts of a user's output can be anything; arrays and tensors have a shape.
        arrays = [part for part in parts if hasattr(part, "shape")]
        if any(ops_of(array).framework != self.framework for array in arrays):
            return f" Return tensors of {self.framework!r}, which carry gradients."
        if self._returns_outputs or is_single:
            return ""
        return f" {_WAY_TO_MEMORY}"


def _takes_space(signature: inspect.Signature, keywords: Mapping[str, Any]) -> bool:
    """Return whether a class or factory takes the input's space as its first argument.

    It does if its first parameter that no keyword fills is required, or has "space" in its name.
    """
    for parameter in signature.parameters.values():
        if parameter.name in keywords:
            continue
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            return False
        return parameter.default is parameter.empty or "space" in parameter.name
    return False


def _takes_seq_lens(module: Module) -> bool:
    """Return whether a module takes `seq_lens`, as recurrent models in RLlib's form do."""
    # PyTorch's modules have `forward`, Keras' layers `call`.
    run = getattr(module, "forward", None) or getattr(module, "call", None)
    # The `forward` of a scripted module has no code object.
    code = getattr(run, "__code__", None)
    if code is None:
        return False
    num_parameters = code.co_argcount + code.co_kwonlyargcount
    return "seq_lens" in code.co_varnames[:num_parameters]


def _describe_parts(parts: Sequence[Any]) -> str:
    """Return the types and shapes of the parts of a module's output."""
    if not parts:
        return "nothing"
    return " and ".join(f"{type(part).__name__} of shape {_shape_of(part)}" for part in parts)


def _shape_of(part: Any) -> tuple[int, ...]:
    """Return the shape of a part of a module's output; `()` if it is neither array nor tensor."""
    # A user's module can return anything.
    return tuple(getattr(part, "shape", ()))


def _structured_codec(space: Space[Any]) -> Preprocessor | None:
    """Return the codec that restores the structure of encoded observations, or None if they have no
    structure.
    """
    codec = preprocessor_of(space)
    if codec is None or not codec.structured:
        return None
    return codec


# --- input of a module ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """Conversion of an observation leaf to a module's input: floats, moved channels, bounds scaled
    to [0, 1].

    Attributes:
        axes: An image's axes in the order in which the module expects them, or None.
        shape: Shape of the image after its axes are moved, if it differs because the channels of
            all frames become those of one image; otherwise None.
        low: Offset to subtract after the axes are moved: a number, or an array in the shape that
            the module sees.
        span: Divisor to apply after the offset, or None to apply neither.
    """

    axes: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    low: float | Array = 0.0
    span: float | Array | None = None


#: Conversion of a part of an observation, by its leaves; None leaves a part unchanged.
Conversion: TypeAlias = (
    "Leaf | Mapping[str, Conversion | None] | tuple[Conversion | None, ...] | None"
)


class ModuleInput(NamedTuple):
    """What a module sees of an observation, or of a part of one.

    Attributes:
        space: Its space.
        conversion: How the observation is converted to it.
    """

    space: Space[Any]
    conversion: Conversion


class _ConversionRule(NamedTuple):
    """How leaves are converted for a module.

    Attributes:
        is_on: Whether they are converted at all.
        channels_first: Whether the module expects images with channels first.
        image_layout: The config's `image_layout`.
    """

    is_on: bool
    channels_first: bool
    image_layout: str | None


class _Arrangement(NamedTuple):
    """Order of an image's axes that a module expects; see `Leaf.axes` and `Leaf.shape`."""

    axes: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    def arrange(self, image: Array) -> Array:
        """Return an image in this order."""
        if self.axes is not None:
            image = image.transpose(self.axes)
        if self.shape is not None:
            image = image.reshape(self.shape)
        return image


def _example_rows(space: Space[Any]) -> Array:
    """Return an encoded observation; for a Box, also the lowest and the highest one."""
    if isinstance(space, Box):
        ordinary = np.clip(np.zeros_like(space.low), space.low, space.high)
        return np.stack([ordinary, space.low, space.high])
    # Discrete and MultiDiscrete count from `start`, which other spaces do not have.
    start = getattr(space, "start", 0)
    first: Array = np.zeros(space.shape or (), space.dtype) + start
    return first[None].astype(space.dtype)


def _convert(value: TensorTree, conversion: Conversion, model: Plain) -> Any:
    """Convert a part of the observation to what the module sees."""
    if conversion is None:
        return value
    if isinstance(conversion, Leaf):
        return model.convert_leaf(value, conversion)
    if isinstance(conversion, tuple):
        parts: Any = value
        pairs = zip(parts, conversion, strict=True)
        return tuple(_convert(part, inner, model) for part, inner in pairs)
    # A dict, or a list, text or graph, which is an object with fields.
    fields = value if isinstance(value, Mapping) else vars(value)
    return {name: _convert(fields[name], inner, model) for name, inner in conversion.items()}


def _read_parts(value: Any, info: SpaceInfo | None, rule: _ConversionRule) -> ModuleInput:
    """Return a module's input for a part of the observation.

    Args:
        value: The part as models see it, for an ordinary observation, for the lowest and for the
            highest one.
        info: The part's space, or None inside lists, texts and graphs, which are passed as dicts.
        rule: How leaves are converted.
    """
    if isinstance(value, np.ndarray):
        return _read_leaf(value, info, rule)
    fields = _fields_of(value)
    is_dict_or_tuple = isinstance(value, dict | tuple)
    # Only the fields of a dict or tuple have spaces.
    infos: Sequence[SpaceInfo | None] = [None] * len(fields)
    if info is not None and is_dict_or_tuple:
        infos = info.children
    spaces: dict[str, Space[Any]] = {}
    conversions: dict[str, Conversion] = {}
    for (name, part), part_info in zip(fields.items(), infos, strict=True):
        part_input = _read_parts(part, part_info, rule)
        spaces[name] = part_input.space
        conversions[name] = part_input.conversion
    # An object with fields is converted to a dict even if its leaves are unchanged.
    is_unchanged = is_dict_or_tuple and all(inner is None for inner in conversions.values())
    conversion: Conversion = None
    if isinstance(value, tuple):
        space: Space[Any] = Tuple(list(spaces.values()))
        if not is_unchanged:
            conversion = tuple(conversions.values())
        return ModuleInput(space, conversion)
    space = Dict(list(spaces.items()))
    if not is_unchanged:
        conversion = conversions
    return ModuleInput(space, conversion)


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the parts of a dict, a tuple, or an object for a list, text or graph, by name."""
    if isinstance(value, tuple):
        return {str(index): part for index, part in enumerate(value)}
    if isinstance(value, dict):
        return {str(name): part for name, part in value.items()}
    fields = {}
    for name, part in vars(value).items():
        # A graph without edges, for example, has no links. A list's number of places is no tensor.
        if part is not None and name != "max_len":
            fields[name] = part
    return fields


def _read_leaf(rows: Array, info: SpaceInfo | None, rule: _ConversionRule) -> ModuleInput:
    """Return a module's input for a leaf; see `_read_parts`."""
    _ordinary, low, high = rows
    if not (low <= high).all():
        # Restoring the encoded bounds did not keep their order, so take the limits of the dtype.
        limits: Any = np.iinfo(rows.dtype) if rows.dtype.kind in "iu" else np.finfo(rows.dtype)
        low = np.full_like(low, limits.min)
        high = np.full_like(high, limits.max)
    if info is None or info.kind != "box" or not rule.is_on:
        return ModuleInput(Box(low, high, low.shape, rows.dtype.type), conversion=None)
    # A filter changes the values, so the space's bounds no longer hold for them.
    has_bounds_of_space = np.array_equal(low, info.space.low) and np.array_equal(
        high, info.space.high
    )
    low = low.astype(np.float32)
    high = high.astype(np.float32)
    is_float = rows.dtype.kind == "f"
    if not is_image(info, rule.image_layout):
        space = Box(low, high, low.shape, np.float32)
        return ModuleInput(space, None if is_float else Leaf())
    layout = read_layout(low.shape, rule.image_layout)
    arrangement = _arrangement_of(low.shape, layout, rule.channels_first)
    low = arrangement.arrange(low)
    high = arrangement.arrange(high)
    if info.dtype == "uint8" and has_bounds_of_space:
        # Bytes are scaled to [0, 1].
        varies = high > low
        span = np.where(varies, high - low, np.float32(1))  # a constant pixel is divided by 1
        space = Box(np.zeros_like(low), varies.astype(np.float32), low.shape, np.float32)
        offset = _number_if_equal(low)
        divisor = _number_if_equal(span)
        return ModuleInput(space, Leaf(*arrangement, low=offset, span=divisor))
    space = Box(low, high, low.shape, np.float32)
    is_unchanged = arrangement.axes is None and is_float
    if is_unchanged:
        return ModuleInput(space, conversion=None)
    return ModuleInput(space, Leaf(*arrangement))


def _number_if_equal(values: Array) -> float | Array:
    """Return the number that all entries of an array equal, or the array if they differ."""
    first = values.flat[0]
    if (values == first).all():
        return float(first)
    return values


def _arrangement_of(
    shape: tuple[int, ...], layout: ImageLayout, channels_first: bool
) -> _Arrangement:
    """Return the order of axes in which a module expects an image.

    Args:
        shape: The image's shape.
        layout: Meaning of its axes.
        channels_first: Whether the module expects the channels first.
    """
    # For a stack of frames, `channels` counts those of all frames.
    height, width, channels = layout.size(shape)
    if layout.has_frames and channels_first:
        # To frames, channels, height, width.
        axes = (0, 1, 2, 3) if layout.channels_first else (0, 3, 1, 2)
        return _Arrangement(axes, (channels, height, width))
    if layout.has_frames:
        # To height, width, frames, channels.
        axes = (2, 3, 0, 1) if layout.channels_first else (1, 2, 0, 3)
        return _Arrangement(axes, (height, width, channels))
    if layout.channels_first == channels_first:
        return _Arrangement()  # unchanged
    if channels_first:
        return _Arrangement(axes=(2, 0, 1))
    return _Arrangement(axes=(1, 2, 0))
