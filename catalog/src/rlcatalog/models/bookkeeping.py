"""Kernel-side state of a model, stored under `model._rlcatalog`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks.ops import Tensor, tensor_ops
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.observations.trunk_observation import TrunkObservation

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2


class ModelBookkeeping:
    """Kernel-side state of one model; each framework has its own subclass, which runs its models.

    All state is in this one object, so that attributes of user classes cannot collide with it.
    Methods take the model as an argument, because a reference to it would create a cycle.

    Args:
        model: The model.

    Attributes:
        ops: The framework's tensor operations.
        preprocessor: The preprocessor of the model's observations if they have a structure to
            restore; otherwise None.
        is_trunk: Whether the model was built with `num_outputs=None`. A trunk without a state never
            sees padding.
        is_vector: Whether the model's observations are vectors.
        last_output: The output of the model's last call.
        held: The models that `assemble` passed to the model's constructor, by argument name.
        part: The part and its plugin as error messages name them, such as "model 'glu' of acme-glu
            1.0"; empty for a registered class.
        unclaimed: For a model inside a head, the part of the observations that the head leaves to
            it.
        asked: The methods among the keys of `nested_losses.ADDITIONS` that were called on this
            model.
        timed: T and B of the last pass if a recurrent model received it as `[T, B, ...]`; otherwise
            None.
    """

    #: Attributes of the last pass's graph, which cannot be copied or pickled.
    of_last_pass: ClassVar[tuple[str, ...]] = ("last_output", "timed")

    def __init__(self, model: ModelV2) -> None:
        preprocessor = preprocessor_of(model.obs_space)
        structured = preprocessor is not None and preprocessor.structured
        self.ops = tensor_ops(model.framework)
        self.preprocessor: Preprocessor | None = preprocessor if structured else None
        self.is_trunk = model.num_outputs is None
        self.is_vector = len(getattr(model.obs_space, "shape", None) or ()) == 1
        self.last_output: Any = None
        self.held: dict[str, ModelV2] = {}
        self.part = ""
        self.unclaimed: TrunkObservation | None = None
        self.asked: set[str] = set()
        self.timed: tuple[Any, Any] | None = None

    def run(
        self, model: ModelV2, inputs: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> Any:
        """Call `forward` with the framework's hooks."""
        return model.forward(inputs, state, seq_lens)

    def check_trace(self, model: ModelV2, what: str) -> None:
        """Raise a `StaleOutputError` if the last call, if any, belongs to a finished trace."""

    def hold(self, model: ModelV2, models: Mapping[str, Any]) -> None:
        """Record the models inside a model; `assemble` calls it after construction.

        Args:
            model: The model.
            models: The inner models by argument name: `"trunk"`, `"value_trunk"`.
        """
        self.held = {name: held for name, held in models.items() if is_model(held)}

    def weights(self, model: ModelV2) -> dict[str, Any]:
        """Return all weights (see `ModelV2.get_weights`)."""
        raise NotImplementedError

    def set_weights(self, model: ModelV2, weights: Mapping[str, Any]) -> None:
        """Set all weights (see `ModelV2.set_weights`)."""
        raise NotImplementedError

    def as_tensors(self, model: ModelV2, obs: Any) -> Any:
        """Convert NumPy arrays in observations into tensors; do nothing if the framework's tensors
        are NumPy arrays.
        """
        return obs

    def flat(self, obs: Tensor) -> Any:
        """Return an unstructured observation as `[B, size]`; return a structure unchanged."""
        shape = getattr(obs, "shape", None)
        return obs if shape is None or len(shape) == 2 else self.ops.flat(obs)

    def batch_major(self, rows: Tensor, steps: int, sequences: int) -> Any:
        """Reorder rows `[T * B, ...]` from time-major to batch-major."""
        raise NotImplementedError

    def padding(self, seq_lens: Tensor, rows: Tensor) -> Any:
        """Return which rows are padding, or None if there is no padding."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(self.of_last_pass)}


def is_model(value: Any) -> bool:
    """Return whether a value is a model whose base class has been initialised."""
    return isinstance(getattr(value, "_rlcatalog", None), ModelBookkeeping)


def real_rows(model: ModelV2, inputs: dict[str, Any], padding: Any) -> dict[str, Any]:
    """Return a model's input without padding rows."""
    real = {name: value for name, value in inputs.items() if name != "seq_lens"}
    repeats = {name: view.batch_repeat_value for name, view in model.view_requirements.items()}
    for name in {"obs", "obs_flat", *repeats} & real.keys():
        real[name] = padding.take(real[name], repeats.get(name, 1))
    return real


def get_submodel(model: ModelV2, name: str) -> Any:
    """Return a model's `trunk` or `value_trunk`, taken from its attribute or the catalog's record,
    or None.
    """
    own = getattr(model, name, None)
    return own if is_model(own) else model._rlcatalog.held.get(name)


def models_inside(model: ModelV2) -> dict[str, Any]:
    """Return a model's `inner_models()`, including the trunk if an override omits it."""
    models_by_place: dict[str, Any] = type(model).inner_models(model)
    if held := model._rlcatalog.held:
        known, models = set[int](), list(models_by_place.values())
        for inner in models:
            known.add(id(inner))
            models += [
                deeper for deeper in models_inside(inner).values() if id(deeper) not in known
            ]
        left = {f"{name}: ": inner for name, inner in held.items() if id(inner) not in known}
        models_by_place = {**models_by_place, **left}
    return models_by_place


def weights_of(model: ModelV2) -> dict[str, Any]:
    """Return all weights of a model; a `get_weights` of its class is ignored (see
    `ModelV2.get_weights`).
    """
    return model._rlcatalog.weights(model)


def set_weights_of(model: ModelV2, weights: Mapping[str, Any]) -> None:
    """Set all weights of a model; a `set_weights` of its class is ignored (see
    `ModelV2.set_weights`).
    """
    model._rlcatalog.set_weights(model, weights)


class RecurrentBase:
    """Framework-independent half of `RecurrentNetwork`, the base class for recurrent models."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(own := vars(cls).get("value_function"), FunctionType):
            cls.value_function = _in_row_order(own)  # type: ignore[attr-defined]

    def forward_rnn(
        self, inputs: Tensor, state: list[Any], seq_lens: Tensor
    ) -> tuple[Any, list[Any]]:
        """Compute the outputs for a batch of sequences.

        Args:
            inputs: Observations `[B, T, obs_size]` (`[T, B, obs_size]` when time-major).
            state: State tensors `[B, ...]`.
            seq_lens: Sequence lengths `[B]`.

        Returns:
            Outputs `[B, T, num_outputs]` (`[T, B, num_outputs]` when time-major) and the new state
            tensors `[B, ...]`. If `value_function` computes values from tensors stored in this
            method, it also returns them in this order. rlcatalog reorders outputs and values from
            `[T, B]` to the order of the batch.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement forward_rnn(inputs, state, seq_lens)."
        )


def _in_row_order(value_function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a recurrent model's `value_function` so that values are in the order of the caller's
    rows.

    After a time-major pass, the model's values are in the order `[T, B]`, but the caller's rows are
    `[B, T]`.
    """

    @functools.wraps(value_function)
    def completed(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        inside = self._rlcatalog
        timed, inside.timed = inside.timed, None  # a base's results are converted only once
        try:
            value = value_function(self, *args, **kwargs)
        finally:
            inside.timed = timed
        return value if timed is None else inside.batch_major(value, *timed)

    return completed


def check_time_major(
    model: ModelV2, shape: tuple[int | None, ...], steps: int | None, sequences: int | None
) -> None:
    """Check that a time-major `forward_rnn` returned outputs `[T, B, ...]`; None means an unknown
    length.

    Raises:
        ModelContractError: The shape differs.
    """
    known = zip(shape[:2], (steps, sequences), strict=False)
    if len(shape) > 2 and any(None not in (n, expected) and n != expected for n, expected in known):
        raise ModelContractError(
            f"{type(model).__name__}.forward_rnn() must return outputs [T, B, n] under"
            f" _time_major, as its inputs are [T, B, obs_size]: expected ({steps}, {sequences},"
            f" n), found {shape}. Do not transpose them."
        )
