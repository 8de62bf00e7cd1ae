"""Framework-independent code for using plain modules as models.

Each framework's class inherits from `Plain`, from a class that runs the framework's modules, and
from the framework's base class for models.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    ModelContractError,
    NotServedError,
    nearest,
    raised_as,
)
from rlcatalog.frameworks import Array, ops_of, tensor_ops
from rlcatalog.models import (
    ModelV2,
    code_of,
    copies_instances,
    last_values,
    output_plan,
    post_fcnet,
)
from rlcatalog.observations import preprocessor_of
from rlcatalog.spaces import ImageLayout, is_image, read_layout

#: Keys without effect on a module that takes `num_outputs`.
_IDLE_ALONE = ("post_fcnet_hiddens", "free_log_std", "no_final_linear")
#: Advice for modules with a state.
_WAY_TO_MEMORY = (
    "A plain module has no state: set use_lstm or use_attention to put a memory after it, or"
    " derive it from RecurrentNetwork (RLlib's form). A module that returns logits and value takes"
    " num_outputs."
)


class Plain(ModelV2):
    """Plain module that maps observations to features, followed by dense layers, logits and a
    value.

    `observations → module → features [B, F] → post_fcnet layers → logits [B, num_outputs]`, and a
    value layer that reads the same features as the logits or, with `vf_share_layers=False`, a
    second module's features. When built as a trunk (`num_outputs=None`), the model ends with the
    features. If the class or factory takes `num_outputs`, its module returns the logits and the
    value itself.

    Each framework's class derives from this class and from the framework's base class for models,
    and implements the methods that are only declared here.

    Args:
        *args: See `ModelV2`.
        **options: Keyword arguments for the class or factory, from `custom_model_config`.

    Attributes:
        input_space: Space for the module's input, without the batch axis.
        is_instance: Whether the source is a module instance.
        module: The module.
        stack_class: The framework's `DenseStack`.
        outputs_class: The framework's `OutputLayers`.
        channels_first: Whether the framework's convolutions expect channels first.
        is_module: `is_module(value)` returns whether a value is a module or a module class of the
            framework.
        unwrapped: `unwrapped(module)` returns the module that a compiled module wraps.
        copied: `copied(module)` returns a deep copy.
        run_module: `run_module(module, x, input_dict)` returns a module's outputs.
        try_module: `try_module(module, rows)` runs a module in eval mode, without side effects.
            `rows` are encoded observations `[2, ...]` that `show` has converted to the module's
            inputs.
        seen: `seen(x, leaf)` returns a leaf of the observation `[B, ...]` as the module sees it.

    Raises:
        ConfigError: An argument is unknown or missing, or a key has no effect here.
        ModelContractError: The module does not return features.
        NotServedError: The module has a recurrent state.
    """

    stack_class: Any
    outputs_class: Any
    channels_first: bool
    is_module: Any
    unwrapped: Any
    copied: Any
    run_module: Any
    try_module: Any
    seen: Any
    #: The class, instance or factory, in a tuple because a function would become a method.
    _source: tuple[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args)
        source, rows = self._source[0], _example_rows(self.obs_space)
        self.input_space, self._plan = self._inputs(rows)
        self.is_instance = not isinstance(source, type) and self.is_module(source)
        wants = (
            None if self.is_instance else inspect.signature(source).parameters.get("num_outputs")
        )
        self._alone = wants is not None and (
            self.num_outputs is not None or wants.default is wants.empty
        )
        self._check_config()
        self.module = self._make(options)
        width = self._width(self.module, rows)
        self.hidden: Any = None
        self.value_module: Any = None
        self.value_hidden: Any = None
        self.outputs: Any = None
        self._features: Any = None
        if self._alone:
            return
        layers = output_plan(
            self.model_config, width, post_fcnet(self.model_config), self.num_outputs
        )
        self.num_outputs = layers.outputs
        self.hidden = self.stack_class(layers.inputs, layers.hidden) if layers.hidden else None
        if layers.logits is not None:
            self.outputs = self.outputs_class(layers)
            if not layers.share:
                self.value_module = self._make(options)
                self._width(self.value_module, rows)
                self.value_hidden = (
                    self.stack_class(layers.inputs, layers.hidden) if layers.hidden else None
                )

    @classmethod
    def of(cls, source: Any) -> type[Self]:
        """Return the model class for a plain module, given as a class, an instance or a factory."""
        code = code_of(source)
        fields = {"__doc__": code.__doc__, "__module__": cls.__module__, "_source": (source,)}
        return type(code.__name__, (cls,), fields)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs"] if self._plan is None else _seen(self._plan, input_dict["obs"], self)
        features = self.run_module(self.module, x, input_dict)
        if self._alone:
            outputs, self._features = features
            return outputs, state
        if self.hidden is not None:
            features = self.hidden(features)
        if (layers := self.outputs) is None:
            return features, state
        self._features = features
        if self.value_module is not None:
            values = self.run_module(self.value_module, x, input_dict)
            self._features = values if self.value_hidden is None else self.value_hidden(values)
        return layers(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        if (features := self._features) is None:
            return last_values(self, None)
        return features if self._alone else self.outputs.values(features)

    def show(self, encoded: Any) -> Any:
        """Convert a tensor of encoded observations to what the module sees."""
        codec = _codec_of(self.obs_space)
        obs = encoded if codec is None else codec.restore(encoded, tensor_ops(self.framework))
        return _seen(self._plan, obs, self)

    # --- internals --------------------------------------------------------------------------------

    def _inputs(self, rows: Array) -> tuple[Any, Any]:
        """Return the space for the module's input, and the plan for creating that input."""
        if len(rows) == 1:
            return self.obs_space, None
        codec, config = _codec_of(self.obs_space), self.model_config
        info = SpaceInfo.read(self.obs_space) if codec is None else codec.info
        channels_first = None if config.get("module_images") == "as_is" else self.channels_first
        shown = rows if codec is None else codec.restore(rows, tensor_ops("numpy"))
        return _inputs_of(shown, info, channels_first, config.get("image_layout"))

    def _check_config(self) -> None:
        """Raise an error if the config requests features that this module does not support."""
        name, config = type(self).__name__, self.model_config
        if self.is_instance and not config.get("vf_share_layers", True):
            raise ConfigError(
                f"vf_share_layers=False: the value needs a second module, but {name} is an"
                " instance. Pass its class, or a function that creates one."
            )
        alone = (
            f"{name} takes num_outputs, so it returns logits and value itself. Remove its"
            " num_outputs argument, or"
        )
        if self._alone and self.num_outputs is None:
            raise NotServedError(
                f"a memory or a head needs features [B, F], but {alone} the memory or head."
            )
        idle = [key for key in _IDLE_ALONE if config.get(key)]
        idle += [] if config.get("vf_share_layers", True) else ["vf_share_layers"]
        if self._alone and idle:
            raise ConfigError(f"{idle[0]}={config[idle[0]]!r} has no effect: {alone} {idle[0]}.")

    def _make(self, options: Mapping[str, Any]) -> Any:
        """Return the given instance, or a new module created by the class or factory."""
        source, name = self._source[0], type(self).__name__
        if self.is_instance:
            if options:
                names = ", ".join(map(repr, options))
                raise ConfigError(
                    f"custom_model_config: {name} is an instance, which takes no arguments, but"
                    f" found {names}. Pass its class."
                )
            return self.unwrapped(self.copied(source) if copies_instances() else source)
        given = {**options, "num_outputs": self.num_outputs} if self._alone else {**options}
        signature = inspect.signature(source)
        first = next((p for p in signature.parameters.values() if p.name not in given), None)
        takes_space = (
            first is not None
            and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
            and (first.default is first.empty or "space" in first.name)
        )
        arguments = [self.input_space] if takes_space else []
        positional = [_brief(argument) for argument in arguments]
        keywords = [f"{key}={value!r}" for key, value in given.items()]
        called = f"{name}({', '.join(positional + keywords)})"
        try:
            signature.bind(*arguments, **given)
        except TypeError as error:
            near = "".join(
                nearest(key, signature.parameters)
                for key in options
                if key not in signature.parameters
            )
            raise ConfigError(
                f"custom_model_config: {called} does not fit {name}{signature}: {error}.{near}"
            ) from None
        with raised_as(lambda why: ModelContractError(f"{called} raised {why}"), CatalogError):
            module = source(*arguments, **given)
        if isinstance(module, type) or not self.is_module(module):
            raise ModelContractError(
                f"{called} must return a module of framework {self.framework!r}, found"
                f" {type(module).__name__}. Pass framework= if it creates a module for a different"
                " framework."
            )
        return self.unwrapped(module)

    def _width(self, module: Any, rows: Array) -> int:
        """Run a module on two observations and return the width of its features, or
        of its outputs.
        """
        name, where = (
            type(self).__name__,
            f"for a batch of two observations of {_brief(self.input_space)}",
        )
        # A scripted module's forward has no signature.
        code = getattr(getattr(module, "forward", None) or module.call, "__code__", None)
        if (
            code is not None
            and "seq_lens" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        ):
            raise NotServedError(f"{name}: its forward method takes seq_lens. {_WAY_TO_MEMORY}")
        with raised_as(
            lambda why: ModelContractError(f"{name} raised {why}, {where}."), CatalogError
        ):
            output = self.try_module(module, rows[:1].repeat(2, axis=0))
        parts = list(output) if isinstance(output, tuple | list) else [output]
        shapes = [tuple(getattr(part, "shape", ())) for part in parts]
        is_batch = (
            len(shapes[0]) == 2
            and shapes[0][0] == 2
            and ops_of(parts[0]).framework == self.framework
            and tensor_ops(self.framework).is_float(parts[0])
        )
        width = int(shapes[0][1]) if is_batch else 0
        if self._alone and width == self.num_outputs and shapes[1:] in ([(2,)], [(2, 1)]):
            return width
        if not self._alone and width and parts[0] is output:
            return width
        wanted, way = (
            "only floating-point features [B, F]",
            "" if parts[0] is output else f" {_WAY_TO_MEMORY}",
        )
        if self._alone:
            wanted, way = (
                f"([B, {self.num_outputs}], [B] or [B, 1]), because it takes num_outputs",
                "",
            )
        arrays = [part for part in parts if hasattr(part, "shape")]
        if any(ops_of(array).framework != self.framework for array in arrays):
            way = f" Return tensors of {self.framework!r}, which carry gradients."
        seen = " and ".join(
            f"{type(part).__name__} of shape {shape}"
            for part, shape in zip(parts, shapes, strict=True)
        )
        raise ModelContractError(f"{name} must return {wanted}, found {seen}, {where}.{way}")


def _codec_of(space: Any) -> Any:
    """Return the codec that restores the structure of encoded observations, or None if they have no
    structure.
    """
    codec = preprocessor_of(space)
    return codec if codec is not None and codec.structured else None


def _brief(space: Any) -> str:
    return SpaceInfo.read(space).describe()


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
    low: Any = 0.0
    span: Any = None


def _example_rows(space: Any) -> Array:
    """Return an encoded observation; for a Box, also the lowest and the highest one."""
    if hasattr(space, "low"):
        return np.stack(
            [np.clip(np.zeros_like(space.low), space.low, space.high), space.low, space.high]
        )
    return (np.zeros(space.shape, space.dtype) + getattr(space, "start", 0))[None].astype(
        space.dtype
    )


def _seen(plan: Any, value: Any, model: Plain) -> Any:
    """Convert a part of the observation to what the module sees; return it unchanged if the plan is
    None.
    """
    if isinstance(plan, dict):
        parts = value if isinstance(value, Mapping) else vars(value)
        return {name: _seen(inner, parts[name], model) for name, inner in plan.items()}
    if isinstance(plan, tuple):
        return tuple(_seen(inner, part, model) for inner, part in zip(plan, value, strict=True))
    return value if plan is None else model.seen(value, plan)


def _inputs_of(
    value: Any, info: SpaceInfo | None, channels_first: bool | None, image_layout: str | None
) -> tuple[Any, Any]:
    """Return the space for a module's input from a part of the observation, and the conversion
    plan.

    Args:
        value: The part as models see it, for an ordinary observation, for the lowest and for the
            highest one.
        info: The part's space, or None inside lists, texts and graphs, which are passed as dicts.
        channels_first: Whether the framework expects images with channels first; None disables the
            conversion.
        image_layout: The config's `image_layout`.
    """
    from gymnasium.spaces import Dict, Tuple

    if hasattr(value, "shape"):
        return _leaf_of(value, info, channels_first, image_layout)
    is_known = info is not None and isinstance(value, dict | tuple)
    named = (
        dict(enumerate(value))
        if isinstance(value, tuple)
        else value
        if isinstance(value, dict)
        else vars(value)
    )
    fields = {
        str(name): part for name, part in named.items() if part is not None and name != "max_len"
    }
    infos = info.children if is_known and info is not None else [None] * len(fields)
    found = [
        _inputs_of(part, one, channels_first, image_layout)
        for part, one in zip(fields.values(), infos, strict=True)
    ]
    spaces, plans = [space for space, _ in found], [plan for _, plan in found]
    as_it_is = isinstance(value, dict | tuple) and all(plan is None for plan in plans)
    if isinstance(value, tuple):
        return Tuple(spaces), None if as_it_is else tuple(plans)
    return Dict(list(zip(fields, spaces, strict=True))), None if as_it_is else dict(
        zip(fields, plans, strict=True)
    )


def _leaf_of(
    rows: Array, info: SpaceInfo | None, channels_first: bool | None, image_layout: str | None
) -> tuple[Any, Any]:
    from gymnasium.spaces import Box

    low, high = rows[1:]  # the first value is an example
    if not (low <= high).all():  # restored bounds are not always in order
        limits: Any = np.iinfo(rows.dtype) if rows.dtype.kind in "iu" else np.finfo(rows.dtype)
        low, high = np.full_like(low, limits.min), np.full_like(low, limits.max)
    if info is None or info.kind != "box" or channels_first is None:
        return Box(low, high, low.shape, rows.dtype.type), None
    axes = shape = span = None
    start = np.float32(0)
    is_bytes = (
        info.dtype == "uint8"
        and np.array_equal(low, info.space.low)
        and np.array_equal(high, info.space.high)
    )
    low, high = low.astype(np.float32), high.astype(np.float32)
    if is_image(info, image_layout):
        axes, shape = _axes_of(low.shape, read_layout(low.shape, image_layout), channels_first)
        if axes is not None:
            low, high = low.transpose(axes), high.transpose(axes)
        if shape is not None:
            low, high = low.reshape(shape), high.reshape(shape)
        if is_bytes:  # a filter changes the values, so the bounds no longer hold
            start, span = low, np.where(high > low, high - low, np.float32(1))
            low, high = np.zeros_like(low), (high > low).astype(np.float32)
    space = Box(low, high, low.shape, np.float32)
    if axes is None and span is None and rows.dtype.kind == "f":
        return space, None
    numbers = (
        None if a is None else float(a.flat[0]) if (a == a.flat[0]).all() else a
        for a in (start, span)
    )
    return space, Leaf(axes, shape, *numbers)


def _axes_of(
    shape: tuple[int, ...], layout: ImageLayout, channels_first: bool
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return `Leaf.axes` and `Leaf.shape` for an image.

    Args:
        shape: The image's shape.
        layout: Meaning of its axes.
        channels_first: Whether the module expects the channels first.
    """
    height, width, channels = layout.size(shape)
    if layout.has_frames and channels_first:
        axes = (0, 1, 2, 3) if layout.channels_first else (0, 3, 1, 2)
        return axes, (channels, height, width)
    if layout.has_frames:
        axes = (2, 3, 0, 1) if layout.channels_first else (1, 2, 0, 3)
        return axes, (height, width, channels)
    if layout.channels_first == channels_first:
        return None, None
    return ((2, 0, 1) if channels_first else (1, 2, 0)), None
