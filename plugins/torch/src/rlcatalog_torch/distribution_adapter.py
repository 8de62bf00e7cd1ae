"""Adapter from `torch.distributions` to action distributions, as in
`register_action_dist("laplace", Laplace)`.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import Space
from torch import Size, Tensor
from torch.distributions import (
    Distribution,
    Independent,
    Transform,
    constraints,
    kl_divergence,
    transform_to,
)

from rlcatalog import SpaceInfo
from rlcatalog.actions import (
    ActionCodec,
    ActionDistribution,
    Interval,
    action_codec,
    check_same_kind,
    hashable_bound,
    read_bounds,
)
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ModelContractError, NoClosedFormError, UnsupportedSpaceError, shown
from rlcatalog.frameworks import Array
from rlcatalog.spaces import Simplex
from rlcatalog_torch.distribution_views import TorchDistribution
from rlcatalog_torch.dtypes import to_float32_at_least
from rlcatalog_torch.ops import OPS, tensor_interval

#: Function from inputs `[B, size]` to a distribution.
Maker = Callable[[Tensor], Distribution]


@cache
def adapted_dist(source: Any, num_inputs: int | Callable[[Space[Any]], int] | None) -> Any:
    """Return an action-distribution class for a `torch.distributions` class or a function that
    returns an instance.

    Args:
        source: A subclass of `torch.distributions.Distribution` whose `arg_constraints` define how
            inputs become its arguments; or, with `num_inputs`, a function or class that takes
            inputs `[B, num_inputs]` and returns a distribution with batch shape `[B]` or `[B, d]`.
        num_inputs: Number of inputs, a function that maps the action space to this number, or None.

    Returns:
        The action-distribution class; any other kind of `source` is returned unchanged.

    Raises:
        ModelContractError: The class's `arg_constraints` are not sufficient.
    """
    is_torch_class = isinstance(source, type) and issubclass(source, Distribution)
    if num_inputs is None and not is_torch_class:
        return source
    # A callable object has no __name__. A lambda's is "<lambda>", which is no name for a class.
    name = getattr(source, "__name__", type(source).__name__).strip("<>")
    fields: dict[str, Any] = {
        # Without staticmethod, a function would become a method.
        "source": staticmethod(source),
        "num_inputs": num_inputs,
        "__doc__": f"{name} of {source.__module__}, as an action distribution.",
    }
    if num_inputs is None:
        # `source` is PyTorch's class: its constraints say how numbers become its arguments.
        transforms = _transforms(source)
        fields["transforms"] = transforms
        fields["maskable"] = _are_logits_of_choices(transforms)
        fields["raw_kind"] = _raw_kind(source)
    fields["__module__"] = source.__module__
    fields["__qualname__"] = name
    # `_Adapted` is the metaclass, so this call creates the class.
    return _Adapted(name, (AdaptedDistribution,), fields)


def _are_logits_of_choices(transforms: Mapping[str, Transform]) -> bool:
    """Return whether a class's only argument is a vector of logits for one choice, which a mask can
    set to minus infinity.
    """
    if list(transforms) != ["logits"]:
        return False
    return transforms["logits"].codomain.event_dim == 1


def _raw_kind(source: type[Distribution]) -> str:
    """Return the kind of raw actions that a class draws; see `ActionDistribution.raw_kind`."""
    # Some classes of PyTorch declare no support, and for some it is a property of instances.
    support = getattr(source, "support", None)
    if support is constraints.unit_interval:
        return "bounded"
    if support is constraints.one_hot:
        return "onehot"
    return "values"


class _Adapted(type):
    """Metaclass for adapted classes, which are pickled by reference to their source."""


def _reduce_adapted(cls: Any) -> tuple[Any, ...]:
    return adapted_dist, (cls.source, cls.num_inputs)


copyreg.pickle(_Adapted, _reduce_adapted)


def _transforms(source: type[Distribution]) -> dict[str, Transform]:
    """Return, by argument of a class, the transform from any number to a valid argument.

    Arguments that are whole numbers, such as a count of trials, keep their defaults.

    Raises:
        ModelContractError: The class's `arg_constraints` are not sufficient.
    """
    parameters = inspect.signature(source).parameters
    try:
        transforms = _transforms_of_constraints(source)
    except (AttributeError, NotImplementedError):
        # The constraints depend on each other or on the instance.
        transforms = {}
    required = set()
    alternatives = []
    for name, parameter in parameters.items():
        is_required = parameter.default is parameter.empty
        if is_required and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            required.add(name)
        # With two such arguments, such as a covariance and a precision, a caller passes one of
        # them, and we cannot know which.
        if name in transforms and parameter.default is None:
            alternatives.append(name)
    if transforms and required <= transforms.keys() and len(alternatives) < 2:
        return transforms
    name = source.__name__
    names = ", ".join(argument for argument in parameters if argument != "validate_args")
    raise ModelContractError(
        f"{name} does not define in arg_constraints how model outputs become its arguments"
        f" ({names}). Register a function that takes the outputs [B, n] and returns a {name}, and"
        " pass their number n: register_action_dist(name, function, num_inputs=n)."
    )


def _transforms_of_constraints(source: type[Distribution]) -> dict[str, Transform]:
    """Return the transform into each constraint that a class declares for its arguments."""
    arg_constraints: Any = source.arg_constraints
    transforms = {}
    for name, constraint in arg_constraints.items():
        # PyTorch's classes take either `probs` or `logits`; model outputs are logits.
        is_replaced = name == "probs" and "logits" in arg_constraints
        if constraint.is_discrete or is_replaced:
            continue
        transforms[name] = transform_to(constraint)
    return transforms


class AdaptedDistribution(TorchDistribution):
    """Base class for adapted distributions from `torch.distributions`; `adapted_dist` creates
    subclasses.

    Args:
        inputs: Model output `[B, size]`. Half-precision inputs are converted to float32.
        model: The model that computed it, or None.
        make: Function that maps the inputs to the distribution.
        whole: Whether raw actions are choices, which are int64.
        entropy_kind: See `ActionDistribution`.
        bounds: Lower and upper bounds to which values in [0, 1] are scaled, and the number of
            values; or None.
        least: The lowest value that `logp` scores unchanged, if the support is bounded below.

    Attributes:
        dist: The wrapped `torch.distributions.Distribution`, with batch shape `[B]`, over values in
            [0, 1] if there are `bounds`.
    """

    maskable = False
    source: ClassVar[Any]
    num_inputs: ClassVar[Any]
    transforms: ClassVar[Mapping[str, Any]]

    def __init__(
        self,
        inputs: Tensor | Array,
        model: Any = None,
        *,
        make: Maker,
        whole: bool = False,
        entropy_kind: str = "exact",
        bounds: tuple[Any, Any, int] | None = None,
        least: float | None = None,
    ) -> None:
        self.inputs = torch.as_tensor(inputs)
        self.model = model
        self.whole = whole
        self.least = least
        self.entropy_kind = entropy_kind  # type: ignore[misc]  # other classes have it on the class
        x = to_float32_at_least(self.inputs)
        dist = make(x)
        axes_of_an_action = len(dist.batch_shape) - 1
        if axes_of_an_action:
            # Its log density is the sum over these axes: one number per row.
            dist = Independent(dist, axes_of_an_action, validate_args=False)
        self.dist: Any = dist
        self.bounds: Interval | None = None
        if bounds is not None:
            low, high, width = bounds
            self.bounds = tensor_interval(low, high, width, x.dtype, x.device)

    @classmethod
    def required_model_output_shape(
        cls, action_space: Space[Any], model_config: Mapping[str, Any] | None = None
    ) -> int:
        """Return the number of inputs that the arguments need."""
        action = SpaceInfo.read(action_space, "action")
        return _fit(cls, action, config=model_config or {}).num_inputs

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor options for the space."""
        return _fit(cls, action, config).options

    def sample(self) -> Tensor:
        """Draw raw actions, without gradients."""
        raw = self._to_raw(self.dist.sample())
        self.last_sample = raw
        return raw

    def rsample(self) -> Tensor:
        """Draw raw actions, with gradients if the class has reparameterised samples."""
        if self.dist.has_rsample:
            return self._to_raw(self.dist.rsample())
        return self._to_raw(self.dist.sample())

    def deterministic_sample(self) -> Tensor:
        """Return the modes, with NaN replaced by the mean.

        Raises:
            NoClosedFormError: The class has no mode.
        """
        try:
            mode = self.dist.mode
        except NotImplementedError:
            raise NoClosedFormError(
                f"{type(self).__name__} has no mode, but acting with explore=False needs one."
                " Register a subclass with a property `mode`, or act with explore=True."
            ) from None
        if mode.is_floating_point():
            # Some classes have no mean either; then NaN remains.
            with suppress(NotImplementedError):
                mode = torch.where(mode.isnan(), self.dist.mean, mode)
        raw = self._to_raw(mode)
        self.last_sample = raw
        return raw

    def _to_raw(self, values: Tensor) -> Tensor:
        """Return raw actions for values of `dist`."""
        if self.bounds is not None:
            return torch.addcmul(self.bounds.low, self.bounds.width, values)
        return values.long() if self.whole else values

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log density `[B]` of raw actions."""
        shape = self.dist.batch_shape + self.dist.event_shape
        x = torch.as_tensor(actions, device=self.inputs.device).reshape(shape)
        dtype = to_float32_at_least(self.inputs).dtype
        if self.bounds is None:
            x = x.to(dtype)
            if self.least is not None:
                # At the bound of its support, a density may be infinite.
                x = x.clamp(min=self.least)
            return self.dist.log_prob(x)  # type: ignore[no-any-return]
        # The wrapped distribution is over [0, 1]. In double precision, because float32 has few
        # digits left near the upper bound.
        share = ((x.double() - self.bounds.low) / self.bounds.width).clamp(_NEAR_0, _NEAR_1)
        return self.dist.log_prob(share).to(dtype) - self.bounds.log_volume  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        """Return the entropy `[B]` in nats."""
        log_volume = 0.0 if self.bounds is None else self.bounds.log_volume
        try:
            return self.dist.entropy() + log_volume  # type: ignore[no-any-return]
        except NotImplementedError:
            return super().entropy()  # type: ignore[no-any-return]

    def entropy_estimate(self) -> Tensor:
        """Return minus the log density `[B]` of a new sample: an unbiased estimate with an unbiased
        gradient.
        """
        logp = self.logp(self.rsample())
        if self.dist.has_rsample:
            return -logp
        # Without a gradient through the sample, add the score function, whose value is 0.
        constant = logp.detach()
        return -logp - constant * (logp - constant)

    def kl(self, other: ActionDistribution) -> Tensor:
        """Return the KL divergence `[B]`, clipped to finite numbers, if `torch.distributions`
        implements it.
        """
        check_same_kind(self, other)
        try:
            return OPS.finite(kl_divergence(self.dist, other.dist))  # type: ignore[attr-defined, no-any-return]
        except NotImplementedError:
            return super().kl(other)  # type: ignore[no-any-return]

    def as_torch(self) -> Distribution:
        if self.bounds is None:
            return self.dist  # type: ignore[no-any-return]
        return super().as_torch()

    def moment(self, name: str) -> Tensor:
        if name == "mean":
            return self._to_raw(self.dist.mean)
        if name == "mode":
            return self.deterministic_sample()
        scale = 1.0 if self.bounds is None else self.bounds.width.square()
        return self.dist.variance * scale  # type: ignore[no-any-return]


#: The lowest normal float32 above 0.
_NEAR_0 = torch.finfo(torch.float32).tiny
#: The highest float32 below 1.
_NEAR_1 = 1 - torch.finfo(torch.float32).eps / 2


# --- options of a class for a space ---------------------------------------------------------------


class _Fit(NamedTuple):
    """How a class serves an action space.

    Attributes:
        num_inputs: Number of inputs.
        options: The constructor options.
    """

    num_inputs: int
    options: dict[str, Any]


def _fit(cls: type[AdaptedDistribution], action: SpaceInfo, config: Mapping[str, Any]) -> _Fit:
    """Return how a class serves an action space.

    Raises:
        UnsupportedSpaceError: The values have the wrong shape, or the support does not fit.
        ModelContractError: A factory does not return a distribution.
    """
    if action.is_empty:
        raise action.error_without_values(cls.__name__)
    if action.is_composite:
        raise UnsupportedSpaceError(
            f"{action.path}: {cls.__name__} is for single parts, found {action.describe()}."
        )
    bounds_rule = read_config(config, KernelConfig).action_bounds
    codec = action_codec(action, bounds_rule, {action.path: cls.raw_kind})
    # The shape of one raw action.
    raw_shape = () if codec.scalar else (codec.width,)
    other_shapes = []
    for num_inputs, make in _ways_to_make(cls, action, codec, raw_shape):
        probe = _probe(cls, num_inputs, make)
        sample_shape = probe.batch_shape + probe.event_shape
        # The probe has two rows.
        if sample_shape == (2, *raw_shape):
            return _Fit(num_inputs, _options_of(cls, action, codec, make, probe))
        other_shapes.append(_batch_shape_text(sample_shape[1:]))
    raise UnsupportedSpaceError(
        f"{action.path}: {action.describe()} takes raw actions {_batch_shape_text(raw_shape)}, but"
        f" {cls.__name__} draws {' or '.join(other_shapes)}."
    )


def _batch_shape_text(shape: tuple[int, ...]) -> str:
    """Return the shape of a batch of values as text, such as "[B, 3]"."""
    return f"[{', '.join(['B', *map(str, shape)])}]"


def _probe(cls: type[AdaptedDistribution], num_inputs: int, make: Maker) -> Distribution:
    """Return a distribution for two rows of inputs.

    The rows differ, to show a support that depends on the arguments.
    """
    probe: Any = make(torch.stack([torch.zeros(num_inputs), torch.ones(num_inputs)]))
    if not isinstance(probe, Distribution):
        raise ModelContractError(
            f"{cls.__name__} must return a torch.distributions.Distribution, found"
            f" {type(probe).__name__}."
        )
    return probe


def _options_of(
    cls: type[AdaptedDistribution],
    action: SpaceInfo,
    codec: ActionCodec,
    make: Maker,
    probe: Distribution,
) -> dict[str, Any]:
    """Return the constructor options of `AdaptedDistribution` for an action space."""
    options: dict[str, Any] = {"make": make, "whole": codec.whole}
    if cls.raw_kind == "bounded":
        # `tensor_interval` caches by its arguments, so they must be hashable.
        low, high = map(hashable_bound, read_bounds(action, cls.__name__))
        options["bounds"] = (low, high, codec.width)
    else:
        options["least"] = _check_support(cls.__name__, probe, codec)
    # PyTorch does not declare which classes have a closed form.
    try:
        probe.entropy()
    except NotImplementedError:
        options["entropy_kind"] = "estimate"
    return options


def _ways_to_make(
    cls: type[AdaptedDistribution],
    action: SpaceInfo,
    codec: ActionCodec,
    raw_shape: tuple[int, ...],
) -> Iterator[tuple[int, Maker]]:
    """Yield the ways in which a class may draw an action, as a number of inputs and a function that
    maps that many inputs to a distribution.

    A user's function is the only way. A class can be tried with one distribution for each value of
    the action, then with one whose event is the whole action.
    """
    num_inputs = cls.num_inputs
    if num_inputs is not None:
        if callable(num_inputs):
            num_inputs = num_inputs(action.space)
        yield int(num_inputs), cls.source
        return
    # The length of a vector of logits, for values that are choices.
    choices = 1
    if codec.whole:
        choices = max(codec.counts or (1,))
    one_for_each_value = _Factory(cls, elements=raw_shape, event_size=choices)
    yield one_for_each_value.num_inputs, one_for_each_value
    one_for_all = _Factory(cls, elements=(), event_size=codec.width)
    yield one_for_all.num_inputs, one_for_all


class _Factory:
    """Function that maps inputs `[B, num_inputs]` to a distribution, through the transforms of its
    class.

    Args:
        cls: The adapted class.
        elements: Shape of the distributions in a row, `()` for a single one.
        event_size: Length of each axis of an argument that is not a number, such as a vector of
            logits.
    """

    def __init__(
        self, cls: type[AdaptedDistribution], elements: tuple[int, ...], event_size: int
    ) -> None:
        self._source = cls.source
        self._transforms = cls.transforms
        #: For each argument, the shape of the inputs that the transform maps to it.
        self._shapes: list[Size] = []
        for transform in cls.transforms.values():
            # 0 axes for a number, 1 for a vector of logits, 2 for a covariance matrix.
            event_axes = transform.codomain.event_dim
            argument_shape = elements + (event_size,) * event_axes
            self._shapes.append(Size(transform.inverse_shape(argument_shape)))
        self._widths = [shape.numel() for shape in self._shapes]
        self.num_inputs = sum(self._widths)
        self._options: dict[str, Any] = {}
        # The transforms already make the arguments valid.
        if "validate_args" in inspect.signature(cls.source).parameters:
            self._options["validate_args"] = False

    def __call__(self, inputs: Tensor) -> Distribution:
        """Return the distribution for inputs `[B, num_inputs]`."""
        pieces = inputs.split_with_sizes(self._widths, dim=1)
        rows = zip(self._transforms.items(), pieces, self._shapes, strict=True)
        arguments = {
            name: transform(piece.reshape(-1, *shape)) for (name, transform), piece, shape in rows
        }
        return self._source(**arguments, **self._options)  # type: ignore[no-any-return]


def _check_support(name: str, probe: Distribution, codec: ActionCodec) -> float | None:
    """Check that every action can be sampled, and that the action codec maps all samples into the
    space.

    Returns:
        The lowest number of a continuous support that is bounded below, or None.

    Raises:
        UnsupportedSpaceError: The support does not fit.
    """
    try:
        support: Any = probe.support
    except NotImplementedError:
        # A class that does not declare its support; samples are checked when they are drawn.
        return None
    if not _has_support(support, probe.batch_shape + probe.event_shape, codec):
        units_advice = ""
        if codec.info.kind == "box" and codec.bounds != "clip":
            units_advice = (
                " Samples are scaled from [-1, 1] to finite bounds; if they are in the"
                " environment's units, set action_bounds='clip' in the model config."
            )
        raise UnsupportedSpaceError(
            f"{codec.info.path}: {name} samples from {shown(support, 80)}, which does not fit"
            f" {codec.info.describe()}.{units_advice} Choose a different distribution, or register"
            " a function, with num_inputs=, that returns it transformed into the space"
            " (torch.distributions.TransformedDistribution)."
        )
    return _lowest_of(support)


def _has_support(support: Any, shape: Size, codec: ActionCodec) -> bool:
    """Return whether a support contains actions of a space, and no other values.

    Args:
        support: PyTorch's constraint on samples.
        shape: Shape of a sample for two rows.
        codec: The codec of the action space.
    """
    takes_choices = codec.counts is not None
    if takes_choices and not support.is_discrete:
        return False
    # A copy, so that the draws do not change the random numbers of the user's space.
    space = copy.deepcopy(codec.info.space)
    space.seed(0)
    actions = np.stack([space.sample() for _ in range(64)])
    inside = torch.as_tensor(codec.invert(actions).astype(np.float32))
    # Values that a support must not contain. A Box has none: its codec maps every number into it.
    outside = inside[:0]
    if isinstance(space, Simplex):
        outside = 2 * inside  # The values add up to 2.
    if codec.whole:
        # Choices count from 0.
        outside = torch.tensor([codec.counts, [-1] * codec.width], dtype=torch.float32)
    if not _check_all(support, inside, shape).all():
        return False
    if not len(outside):
        return True
    return not _check_all(support, outside, shape).any()


def _check_all(support: Any, values: Tensor, shape: Size) -> Tensor:
    """Return what a support says of each value, for both rows of a sample with a shape."""
    rows = values.reshape(len(values), 1, *shape[1:]).expand(len(values), *shape)
    return support.check(rows)  # type: ignore[no-any-return]


def _lowest_of(support: Any) -> float | None:
    """Return the lowest number of a continuous support; None if it has none."""
    # PyTorch's constraint on vectors, `independent`, holds the constraint on each number.
    support = getattr(support, "base_constraint", support)
    if support.is_discrete:
        return None
    lowest: Any
    if support is constraints.simplex:
        lowest = 0
    else:
        # Only some constraints of PyTorch have a bound, and some have a tensor.
        lowest = getattr(support, "lower_bound", None)
    if not isinstance(lowest, int | float):
        return None
    # Stay above the bound itself, where the density may be infinite.
    return float(lowest) + torch.finfo(torch.float32).tiny
