"""Plain modules as models: what a module is shown, how it is called and tried, and the layers behind it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np

from rlcatalog.errors import CatalogError, ConfigError, ModelContractError, NotServedError, nearest, raised_as
from rlcatalog.frameworks import frameworks, require_framework
from rlcatalog.frameworks.ops import NUMPY_OPS
from rlcatalog.frameworks.table import framework_of
from rlcatalog.models.layers import output_plan, post_fcnet
from rlcatalog.models.model import ModelV2, last_values
from rlcatalog.spaces import SpaceInfo

Array = np.ndarray[Any, Any]

#: Whether instances are deep-copied where a model is built of them: a second model has weights of its own.
_COPYING: ContextVar[bool] = ContextVar("rlcatalog_copying", default=False)
#: Keys without effect on a module that takes `num_outputs`, and what they must be.
_IDLE_ALONE = {"vf_share_layers": True, "post_fcnet_hiddens": [], "free_log_std": False, "no_final_linear": False}
#: What to do with a state.
_WAY_TO_MEMORY = (
    "A plain module has no state: set use_lstm or use_attention, which put a memory behind it, or derive it from"
    " RecurrentNetwork (RLlib's form). One that gives logits and value takes num_outputs."
)


@contextmanager
def copying_instances() -> Iterator[None]:
    """Let models that are built meanwhile use deep copies of the instances that a config names."""
    before = _COPYING.set(True)
    try:
        yield
    finally:
        _COPYING.reset(before)


def frameworks_of_plain(source: Any) -> list[str]:
    """Return the frameworks that a plain module is of: one for a class or an instance, any for a factory; or none."""
    kind = source if isinstance(source, type) else type(source)
    if any(base.__name__ == "ModelV2" for base in kind.__mro__):  # ours, built, or RLlib's own
        return []
    if (spec := framework_of(kind)) is not None and spec.target("plain") is not None:
        require_framework(spec.name)
        return [spec.name] if spec.load("plain").is_module(source) else []
    if inspect.isroutine(source) or isinstance(source, functools.partial):
        return [name for name, spec in frameworks().items() if spec.target("plain") is not None]
    return []


def code_of(source: Any) -> Any:
    """Return what names a plain module in a program: its class or function; of an instance, its class."""
    while isinstance(source, functools.partial):
        source = source.func
    if hasattr(source, "__qualname__"):
        return source
    spec = framework_of(type(source))
    return type(source) if spec is None else type(spec.load("plain").unwrapped(source))


class PlainModel(ModelV2):
    """A plain module that maps observations to features, dense layers, then logits and a value.

    `observations → module → features [B, F] → post_fcnet layers → logits [B, num_outputs]`, and a value layer that
    reads what the logits read or, with `vf_share_layers=False`, a second module. Built as a trunk (`num_outputs=None`)
    it ends with the features. A class or factory that takes `num_outputs` gives logits and value itself.

    A framework's class derives from it and from the framework's base class of models, and brings what is not
    implemented here.

    Args:
        *args: See `ModelV2`.
        **options: Keyword arguments for the class or factory: `custom_model_config`.

    Attributes:
        input_space: What the module is called with, without the batch axis.
        module: The module.
        stack_class: The framework's `DenseStack`.
        outputs_class: Its `OutputLayers`.
        channels_first: Whether the framework's convolutions read the channels of an image before its rows.

    Raises:
        ConfigError: An argument is not taken or missing, or a key has no effect here.
        ModelContractError: The module returns something else than features.
        NotServedError: It has a state.
    """

    stack_class: Any
    outputs_class: Any
    channels_first: ClassVar[bool]
    hidden: Any
    value_module: Any
    value_hidden: Any
    outputs: Any
    #: The class, instance or factory, alone in a tuple: a function would become a method.
    _rlcatalog_source: ClassVar[tuple[Any]]
    _rlcatalog_base: ClassVar[type[PlainModel]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args)
        config, num_outputs = self.model_config, self.num_outputs
        source, codec = self._rlcatalog_source[0], self._rlcatalog.preprocessor
        rows = _example_rows(self.obs_space)
        self.input_space, self._plan = self.obs_space, None
        if len(rows) > 1:
            info = SpaceInfo.read(self.obs_space) if codec is None else codec.info
            is_first = None if config.get("module_images") == "as_is" else self.channels_first
            shown = rows if codec is None else codec.restore(rows, NUMPY_OPS)
            self.input_space, self._plan = _inputs_of(shown, info, is_first, config.get("image_layout") == "chw")
        self.is_instance = not isinstance(source, type) and self.is_module(source)
        parameters = {} if self.is_instance else inspect.signature(source).parameters
        wants = parameters.get("num_outputs")
        self._alone = wants is not None and (num_outputs is not None or wants.default is wants.empty)
        self._check_config(num_outputs)
        self.module = self._make(options)
        width = self._width(self.module, rows[:1].repeat(2, axis=0))
        self.hidden = self.value_module = self.value_hidden = self.outputs = self._features = None
        if self._alone:
            return
        layers = output_plan(config, width, post_fcnet(config), num_outputs)
        self.num_outputs = layers.outputs
        if layers.hidden:
            self.hidden = self.stack_class(layers.inputs, layers.hidden)
        if num_outputs is not None:
            if not layers.share:
                self.value_module = self._make(options)
                self._width(self.value_module, rows[:1].repeat(2, axis=0))
                if layers.hidden:
                    self.value_hidden = self.stack_class(layers.inputs, layers.hidden)
            self.outputs = self.outputs_class(layers)

    @classmethod
    def of(cls, source: Any) -> type[Self]:
        """Return the model class of a plain module: a class, an instance or a factory."""
        code = code_of(source)
        fields = {"__doc__": code.__doc__, "__module__": cls.__module__}
        fields |= {"_rlcatalog_source": (source,), "_rlcatalog_base": cls}
        return type(code.__name__, (cls,), fields)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs"]
        if self._plan is not None:
            x = _seen(self._plan, x, self)
        features = self.run_module(self.module, x, input_dict)
        if self._alone:
            outputs, self._features = features
            return outputs, state
        if self.hidden is not None:
            features = self.hidden(features)
        if self.outputs is None:
            return features, state
        self._features = features
        if self.value_module is not None:
            values = self.run_module(self.value_module, x, input_dict)
            self._features = values if self.value_hidden is None else self.value_hidden(values)
        return self.outputs(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return self._features if self._alone and self._features is not None else last_values(self, self._features)

    def __reduce_ex__(self, protocol: Any) -> Any:
        state: Any = super().__reduce_ex__(protocol)  # its class is found by its source alone
        return (_empty, (self._rlcatalog_base, self._rlcatalog_source[0]), *state[2:])

    # --- of the framework ------------------------------------------------------------------------------------------

    @staticmethod
    def is_module(value: Any) -> bool:
        """Whether a value is a module, or a class of modules, that this framework runs."""
        raise NotImplementedError

    @staticmethod
    def unwrapped(module: Any) -> Any:
        """Return the module behind one that was compiled, whose weights it names as that does."""
        return module

    @staticmethod
    def forward_of(module: Any) -> Any:
        """Return the method of a module that computes its outputs."""
        raise NotImplementedError

    def copied(self, module: Any) -> Any:
        """Return a deep copy of a module."""
        raise NotImplementedError

    def run_module(self, module: Any, x: Any, inputs: Mapping[str, Any]) -> Any:
        """Return a module's outputs; `inputs` is what the model was called with."""
        raise NotImplementedError

    def try_module(self, module: Any, rows: Array) -> Any:
        """Run a module on encoded observations `[2, ...]` by `show`, as when acting, and leave no trace."""
        raise NotImplementedError

    def seen(self, x: Any, leaf: Leaf) -> Any:
        """Return a leaf of the observation `[B, ...]` as the module is shown it."""
        raise NotImplementedError

    # --- inside ----------------------------------------------------------------------------------------------------

    def show(self, encoded: Any) -> Any:
        """Return encoded observations, a tensor, as the module is shown them."""
        codec = self._rlcatalog.preprocessor
        return _seen(self._plan, encoded if codec is None else codec.restore(encoded, self._rlcatalog.ops), self)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _check_config(self, num_outputs: int | None) -> None:
        """Raise where a key of the config asks for what this module cannot give."""
        if self.is_instance and not self.model_config.get("vf_share_layers", True):
            raise ConfigError(
                f"vf_share_layers=False: the value needs a second module, and {self._name} is an instance. Pass its"
                " class, or a function that makes one."
            )
        if self._alone and num_outputs is None:
            raise NotServedError(
                f"{self._name} takes num_outputs and so gives logits and value itself; a memory or a head needs"
                " features [B, F]. Leave num_outputs out of its constructor, or the memory or head out of the config."
            )
        for key, idle in _IDLE_ALONE.items() if self._alone else ():
            if self.model_config.get(key, idle) != idle:
                raise ConfigError(
                    f"{key}={self.model_config[key]!r} has no effect: {self._name} takes num_outputs and so gives"
                    f" logits and value itself. Leave {key} out, or num_outputs out of its constructor."
                )

    def _make(self, options: Mapping[str, Any]) -> Any:
        """Return the instance, or one more module of the class or factory."""
        source = self._rlcatalog_source[0]
        if self.is_instance:
            if options:
                raise ConfigError(
                    f"custom_model_config: {self._name} is an instance, which takes no arguments; found"
                    f" {', '.join(map(repr, options))}. Pass its class."
                )
            return self.unwrapped(self.copied(source) if _COPYING.get() else source)
        given, arguments = {**options, **({"num_outputs": self.num_outputs} if self._alone else {})}, []
        parameters = inspect.signature(source).parameters.values()
        left = [p for p in parameters if p.name not in given and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        required = [p.name for p in left if p.default is p.empty]
        if left and left[0].kind is not left[0].KEYWORD_ONLY and (left[0].name in required or "space" in left[0].name):
            arguments, known = [self.input_space], [name for name in known if name != left[0].name]
            required = [name for name in required if name != left[0].name]
        wrong = [] if any(p.kind is p.VAR_KEYWORD for p in parameters) else [n for n in options if n not in known]
        for name in wrong:
            raise ConfigError(f"custom_model_config: {self._name} takes no {name!r}.{nearest(name, known)} Accepted:"
                              f" {', '.join(n for n in known if n != 'num_outputs') or 'none'}.")  # fmt: skip
        if required:
            raise ConfigError(
                f"{self._name} needs {', '.join(map(repr, required))} beside the observation space. Give"
                f" custom_model_config={{{', '.join(f'{name!r}: ...' for name in required)}}}."
            )
        spaces = [SpaceInfo.read(space).describe() for space in arguments]
        called = ", ".join([*spaces, *(f"{name}={value!r}" for name, value in given.items())])
        with raised_as(lambda why: ModelContractError(f"{self._name}({called}) raised {why}"), CatalogError):
            module = source(*arguments, **given)
        if isinstance(module, type) or not self.is_module(module):
            raise ModelContractError(
                f"{self._name}({called}) must return a module of framework {self.framework!r}, found"
                f" {type(module).__name__}. Pass framework= where it makes another framework's."
            )
        return self.unwrapped(module)

    def _width(self, module: Any, rows: Array) -> int:
        """Run a module on two observations and return the width of its features, or of its outputs."""
        try:
            takes_lengths = "seq_lens" in inspect.signature(self.forward_of(module)).parameters
        except (TypeError, ValueError):  # a scripted module's
            takes_lengths = False
        if takes_lengths:
            raise NotServedError(f"{self._name}: its forward takes seq_lens. {_WAY_TO_MEMORY}")
        where = f"for a batch of two observations of {SpaceInfo.read(self.input_space).describe()}"
        with raised_as(lambda why: ModelContractError(f"{self._name} raised {why}, {where}."), CatalogError):
            output = self.try_module(module, rows)
        parts = list(output) if isinstance(output, tuple | list) else [output]
        shapes = [tuple(part.shape) if hasattr(part, "shape") else None for part in parts]
        first, *others = shapes or [None]
        is_batch = first is not None and len(first) == 2 and first[0] == 2 and self._rlcatalog.ops.is_float(parts[0])
        width = first[1] if is_batch and first is not None else 0
        if self._alone:
            if width == self.num_outputs and others in ([(2,)], [(2, 1)]):
                return width
            wanted = f"([B, {self.num_outputs}], [B] or [B, 1]), as it takes num_outputs"
        elif width and parts[0] is output:
            return width
        else:
            wanted = "floating-point features [B, F] alone"
        seen = " and ".join("no tensor" if shape is None else f"shape {shape}" for shape in shapes) or "nothing"
        raise ModelContractError(
            f"{self._name} must return {wanted}; found {seen}, {where}."
            f"{'' if parts[0] is output or self._alone else f' {_WAY_TO_MEMORY}'}"
        )


def _empty(base: type[PlainModel], source: Any) -> PlainModel:
    cls = base.of(source)
    return cls.__new__(cls)


# --- what a module is shown ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """How a leaf of the observation is turned into what a module is shown: floats, channels moved, bounds to [0, 1].

    Attributes:
        axes: The axes of an image in the order in which the module reads them, or None.
        low: What is subtracted then: a number, or an array of the shape that the module is shown.
        span: What is divided by, or None for neither.
    """

    axes: tuple[int, ...] | None = None
    low: Any = 0.0
    span: Any = None


def _example_rows(space: Any) -> Array:
    """Return an encoded observation; of a Box, the lowest and the highest too."""
    if hasattr(space, "low"):
        return np.stack([np.clip(np.zeros_like(space.low), space.low, space.high), space.low, space.high])
    return (np.zeros(space.shape, space.dtype) + getattr(space, "start", 0))[None].astype(space.dtype)


def _seen(plan: Any, value: Any, model: PlainModel) -> Any:
    """Return a part of the observation as the module is shown it; None plans nothing."""
    if plan is None:
        return value
    if isinstance(plan, dict):
        parts = value if isinstance(value, Mapping) else vars(value)
        return {name: _seen(inner, parts[name], model) for name, inner in plan.items()}
    if isinstance(plan, tuple):
        return tuple(_seen(inner, part, model) for inner, part in zip(plan, value, strict=True))
    return model.seen(value, plan)


def _inputs_of(value: Any, info: SpaceInfo | None, channels_first: bool | None, is_chw: bool) -> tuple[Any, Any]:
    """Return the space of what a module is shown of a part of the observation, and the plan of how.

    Args:
        value: The part as models find it: of one observation, of the lowest and of the highest.
        info: Its space, where it is known.
        channels_first: How the framework reads images; None leaves everything as it is.
        is_chw: Whether the environment's images have their channels first.
    """
    from gymnasium.spaces import Dict, Tuple

    if hasattr(value, "shape"):
        return _leaf_of(value, info, channels_first, is_chw)
    named = dict(enumerate(value)) if isinstance(value, tuple) else value if isinstance(value, Mapping) else vars(value)
    fields = {name: part for name, part in named.items() if part is not None and name != "max_len"}
    known = info is not None and info.is_composite and not is_dataclass(value)
    infos = info.children if known and info is not None else [None] * len(fields)
    parts = [_inputs_of(part, one, channels_first, is_chw) for part, one in zip(fields.values(), infos, strict=True)]
    spaces, plans = [space for space, _ in parts], [plan for _, plan in parts]
    as_it_is = not is_dataclass(value) and all(plan is None for plan in plans)
    if isinstance(value, tuple):
        return Tuple(spaces), None if as_it_is else tuple(plans)
    names = [str(name) for name in fields]
    return Dict(list(zip(names, spaces, strict=True))), None if as_it_is else dict(zip(names, plans, strict=True))


def _leaf_of(rows: Array, info: SpaceInfo | None, channels_first: bool | None, is_chw: bool) -> tuple[Any, Any]:
    from gymnasium.spaces import Box

    low, high = rows[1:]  # the first is an example
    if not (low <= high).all():  # what restoring makes of bounds may be none
        kind = np.iinfo(rows.dtype) if rows.dtype.kind in "iu" else None
        low, high = (np.full(low.shape, -np.inf if kind is None else kind.min, rows.dtype),
                     np.full(low.shape, np.inf if kind is None else kind.max, rows.dtype))  # fmt: skip
    if info is None or info.kind != "box" or channels_first is None:
        return Box(low, high, low.shape, rows.dtype.type), None
    axes, start, span = None, np.zeros_like(low), None
    low, high = low.astype(np.float32), high.astype(np.float32)
    if low.ndim == 3:
        own: Any = info
        if own.dtype == "uint8" and np.array_equal(low, own.low) and np.array_equal(high, own.high):  # unfiltered
            start, span = low, np.where(high > low, high - low, 1).astype(np.float32)
            low, high = np.zeros_like(low), (high > low).astype(np.float32)
        # A stack of frames has its few channels first, whatever the layout of the environment's single images.
        is_first = is_chw or low.shape[0] < min(low.shape[1:])
        if is_first != channels_first:
            axes = (2, 0, 1) if channels_first else (1, 2, 0)
            low, high, start = low.transpose(axes), high.transpose(axes), start.transpose(axes)
            span = None if span is None else span.transpose(axes)
    space = Box(low, high, low.shape, np.float32)
    if axes is None and span is None and rows.dtype.kind == "f":
        return space, None
    return space, Leaf(axes, _one_number(start), None if span is None else _one_number(span))


def _one_number(array: Array) -> Any:
    """Return an array of one number everywhere as that number."""
    return float(array.flat[0]) if (array == array.flat[0]).all() else array
