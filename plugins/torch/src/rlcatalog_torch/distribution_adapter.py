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
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Size, Tensor
from torch.distributions import Distribution, Independent, constraints, kl_divergence, transform_to

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionCodec, action_codec, hashable_bound, read_bounds, same_kind
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ModelContractError, NoClosedFormError, UnsupportedSpaceError, shown
from rlcatalog.spaces import Simplex
from rlcatalog_torch.distribution_views import TorchDistribution
from rlcatalog_torch.dtypes import to_float32_at_least
from rlcatalog_torch.ops import OPS, tensor_interval

#: Function from inputs `[B, size]` to a distribution.
Maker = Callable[[Tensor], Distribution]


@cache
def adapted_dist(source: Any, num_inputs: Any) -> Any:
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
    if num_inputs is None and not (isinstance(source, type) and issubclass(source, Distribution)):
        return source
    name = getattr(source, "__name__", type(source).__name__).strip("<>")
    doc = f"{name} of {source.__module__}, as an action distribution."
    fields: dict[str, Any] = {
        "source": staticmethod(source),
        "num_inputs": num_inputs,
        "__doc__": doc,
    }
    if num_inputs is None:
        fields["transforms"] = transforms = _transforms(source)
        fields["maskable"] = [(n, t.codomain.event_dim) for n, t in transforms.items()] == [
            ("logits", 1)
        ]
        kinds: dict[Any, str] = {
            constraints.unit_interval: "bounded",
            constraints.one_hot: "onehot",
        }
        fields["raw_kind"] = kinds.get(getattr(source, "support", None), "values")
    return _Adapted(
        name,
        (AdaptedDistribution,),
        fields | {"__module__": source.__module__, "__qualname__": name},
    )


class _Adapted(type):
    """Metaclass for adapted classes, which are pickled by reference to their source."""


copyreg.pickle(_Adapted, lambda cls: (adapted_dist, (cls.source, cls.num_inputs)))  # type: ignore[attr-defined]


def _transforms(source: type[Distribution]) -> dict[str, Any]:
    """Return the transforms from numbers to a class's arguments; whole-number arguments keep their
    defaults.

    Raises:
        ModelContractError: The class's `arg_constraints` are not sufficient.
    """
    parameters = inspect.signature(source).parameters
    wanted: Any = source.arg_constraints
    try:
        wanted = {
            name: constraint for name, constraint in wanted.items() if not constraint.is_discrete
        }
        if "logits" in wanted:
            wanted.pop("probs", None)
        transforms = {name: transform_to(constraint) for name, constraint in wanted.items()}
    except (AttributeError, NotImplementedError):  # they depend on each other or on the instance
        transforms = {}
    required = {
        n
        for n, p in parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    }
    alternatives = [n for n in transforms if n in parameters and parameters[n].default is None]
    if transforms and required <= transforms.keys() and len(alternatives) < 2:
        return transforms
    name = source.__name__
    raise ModelContractError(
        f"{name} does not define in arg_constraints how model outputs become its arguments"
        f" ({', '.join(n for n in parameters if n != 'validate_args')}). Register a function that"
        f" takes the outputs [B, n] and returns a {name}, and pass their number n:"
        " register_action_dist(name, function, num_inputs=n)."
    )


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
        inputs: Any,
        model: Any = None,
        *,
        make: Maker,
        whole: bool = False,
        entropy_kind: str = "exact",
        bounds: tuple[Any, Any, int] | None = None,
        least: float | None = None,
    ) -> None:
        self.inputs, self.model, self.whole, self.least = (
            torch.as_tensor(inputs),
            model,
            whole,
            least,
        )
        self.entropy_kind = entropy_kind  # type: ignore[misc]  # a class variable elsewhere
        x = to_float32_at_least(self.inputs)
        dist = make(x)
        extra = len(dist.batch_shape) - 1
        self.dist: Any = Independent(dist, extra, validate_args=False) if extra else dist
        self.bounds = None if bounds is None else tensor_interval(*bounds, x.dtype, x.device)

    @classmethod
    def required_model_output_shape(cls, action_space: Any, model_config: Any = None) -> int:
        """Return the number of inputs that the arguments need."""
        return _served(cls, SpaceInfo.read(action_space, "action"), model_config or {})[0]

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor options for the space."""
        return _served(cls, action, config)[1]

    def sample(self) -> Tensor:
        """Draw raw actions, without gradients."""
        self.last_sample = drawn = self._raw(self.dist.sample())
        return drawn

    def rsample(self) -> Tensor:
        """Draw raw actions, with gradients if the class has reparameterised samples."""
        return self._raw(self.dist.rsample() if self.dist.has_rsample else self.dist.sample())

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
            with suppress(NotImplementedError):
                mode = torch.where(mode.isnan(), self.dist.mean, mode)
        self.last_sample = drawn = self._raw(mode)
        return drawn

    def _raw(self, drawn: Tensor) -> Tensor:
        if self.bounds is not None:
            return torch.addcmul(self.bounds.low, self.bounds.width, drawn)
        return drawn.long() if self.whole else drawn

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of raw actions."""
        x = torch.as_tensor(actions, device=self.inputs.device).reshape(
            self.dist.batch_shape + self.dist.event_shape
        )
        dtype = to_float32_at_least(self.inputs).dtype
        if self.bounds is None:
            x = x.to(dtype)
            return self.dist.log_prob(x if self.least is None else x.clamp(min=self.least))  # type: ignore[no-any-return]
        # In double precision: near the upper bound, float32 has few digits left.
        share = ((x.double() - self.bounds.low) / self.bounds.width).clamp(_NEAR_0, _NEAR_1)
        return self.dist.log_prob(share).to(dtype) - self.bounds.log_volume  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        """Return the entropy `[B]` in nats."""
        try:
            return self.dist.entropy() + (0.0 if self.bounds is None else self.bounds.log_volume)  # type: ignore[no-any-return]
        except NotImplementedError:
            return super().entropy()  # type: ignore[no-any-return]

    def entropy_estimate(self) -> Tensor:
        """Return minus the log density `[B]` of a new sample: an unbiased estimate with an unbiased
        gradient.
        """
        logp = self.logp(self.rsample())
        held = logp.detach()
        # Without a gradient through the sample, add the score function with value 0.
        return -logp if self.dist.has_rsample else -logp - held * (logp - held)

    def kl(self, other: Any) -> Tensor:
        """Return the KL divergence `[B]`, clipped to finite numbers, if `torch.distributions`
        implements it.
        """
        same_kind(self, other)
        try:
            return OPS.finite(kl_divergence(self.dist, other.dist))  # type: ignore[no-any-return]
        except NotImplementedError:
            return super().kl(other)  # type: ignore[no-any-return]

    def as_torch(self) -> Distribution:
        return self.dist if self.bounds is None else super().as_torch()

    def moment(self, name: str) -> Tensor:
        if name == "variance":
            return self.dist.variance * (1.0 if self.bounds is None else self.bounds.width.square())  # type: ignore[no-any-return]
        return self._raw(self.dist.mean) if name == "mean" else self.deterministic_sample()


#: The lowest and the highest float32 between 0 and 1; the lowest is a normal number.
_NEAR_0, _NEAR_1 = torch.finfo(torch.float32).tiny, 1 - torch.finfo(torch.float32).eps / 2


# --- options of a class for a space ---------------------------------------------------------------


def _served(
    cls: type[AdaptedDistribution], action: SpaceInfo, config: Mapping[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Return the number of inputs for an action space, and the constructor options.

    Raises:
        UnsupportedSpaceError: The values have the wrong shape, or the support does not fit.
        ModelContractError: A factory does not return a distribution.
    """
    if action.is_empty:
        raise action.without_values(cls.__name__)
    if action.is_composite:
        raise UnsupportedSpaceError(
            f"{action.path}: {cls.__name__} is for single parts, found {action.describe()}."
        )
    rule = read_config(config, KernelConfig).action_bounds
    codec = action_codec(action, rule, {action.path: cls.raw_kind})
    raw, shapes = () if codec.scalar else (codec.width,), []
    for size, make in _ways(cls, action, codec, raw):
        # Two different rows show a support that depends on the arguments.
        probe: Any = make(torch.stack([torch.zeros(size), torch.ones(size)]))
        if not isinstance(probe, Distribution):
            raise ModelContractError(
                f"{cls.__name__} must return a torch.distributions.Distribution, found"
                f" {type(probe).__name__}."
            )
        shapes.append(
            f"[B{''.join(f', {n}' for n in (probe.batch_shape + probe.event_shape)[1:])}]"
        )
        if probe.batch_shape + probe.event_shape != (2, *raw):
            continue
        options: dict[str, Any] = {"make": make, "whole": codec.whole}
        if cls.raw_kind == "bounded":
            options["bounds"] = (
                *map(hashable_bound, read_bounds(action, cls.__name__)),
                codec.width,
            )
        else:
            options["least"] = _check_support(cls.__name__, probe, codec)
        try:
            probe.entropy()
        except NotImplementedError:
            options["entropy_kind"] = "estimate"
        return size, options
    raise UnsupportedSpaceError(
        f"{action.path}: {action.describe()} takes raw actions"
        f" [B{''.join(f', {n}' for n in raw)}], but {cls.__name__} draws {' or '.join(shapes)}."
    )


def _ways(
    cls: type[AdaptedDistribution], action: SpaceInfo, codec: ActionCodec, raw: tuple[int, ...]
) -> Iterator[tuple[int, Maker]]:
    """Yield numbers of inputs and functions that take them: first one per value, then one for all
    as an event.
    """
    if cls.num_inputs is not None:
        yield (
            int(cls.num_inputs(action.space) if callable(cls.num_inputs) else cls.num_inputs),
            cls.source,
        )
        return
    options = (
        {"validate_args": False}
        if "validate_args" in inspect.signature(cls.source).parameters
        else {}
    )
    for elements, n in ((raw, max(codec.counts or (1,)) if codec.whole else 1), ((), codec.width)):
        domains = [(t, (*elements, *[n] * t.codomain.event_dim)) for t in cls.transforms.values()]
        shapes = [Size(transform.inverse_shape(domain)) for transform, domain in domains]
        widths = [shape.numel() for shape in shapes]

        def make(
            inputs: Tensor, widths: list[int] = widths, shapes: list[Size] = shapes
        ) -> Distribution:
            rows = zip(
                cls.transforms.items(), inputs.split_with_sizes(widths, 1), shapes, strict=True
            )
            arguments = {
                name: transform(x.reshape(-1, *shape)) for (name, transform), x, shape in rows
            }
            return cls.source(**arguments, **options)  # type: ignore[no-any-return]

        yield sum(widths), make


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
    except NotImplementedError:  # unknown; its samples are checked
        return None
    space = copy.deepcopy(codec.info.space)
    space.seed(0)
    inside = torch.as_tensor(
        codec.invert(np.stack([space.sample() for _ in range(64)])).astype(np.float32)
    )
    outside = 2 * inside if isinstance(space, Simplex) else inside[:0]
    if codec.whole:
        outside = torch.tensor([codec.counts, [-1] * codec.width], dtype=torch.float32)
    like, fits = probe.batch_shape + probe.event_shape, support.is_discrete or codec.counts is None
    for x, expected in ((inside, True), (outside, False)):
        if fits and len(x):
            fits = (
                support.check(x.reshape(len(x), 1, *like[1:]).expand(len(x), *like)) == expected
            ).all()
    if not fits:
        units = ""
        if codec.info.kind == "box" and codec.bounds != "clip":
            units = (
                " Samples are scaled from [-1, 1] to finite bounds; if they are in the"
                " environment's units, set action_bounds='clip' in the model config."
            )
        raise UnsupportedSpaceError(
            f"{codec.info.path}: {name} samples from {shown(support, 80)}, which does not fit"
            f" {codec.info.describe()}.{units} Choose a different distribution, or register a"
            " function, with num_inputs=, that returns it transformed into the space"
            " (torch.distributions.TransformedDistribution)."
        )
    support = getattr(support, "base_constraint", support)
    lowest = 0 if support is constraints.simplex else getattr(support, "lower_bound", None)
    is_number = isinstance(lowest, int | float) and not support.is_discrete
    return float(lowest) + torch.finfo(torch.float32).tiny if is_number else None  # type: ignore[arg-type]
