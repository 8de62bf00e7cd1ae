"""What the kernel keeps of a model and does with it: `model._rlcatalog`, the one name of its own on a user's object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks.ops import Tensor, tensor_ops
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.observations.trunk_observation import TrunkObservation

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2


class ModelInternals:
    """The kernel's state of one model; a framework's own class of it says how that framework runs a model.

    It is no attribute of `ModelV2` but an object behind one, so that no name of a user's collides with it. Methods take
    the model: a reference back would make every model a cycle.

    Args:
        model: The model.

    Attributes:
        ops: The framework's tensor operations.
        preprocessor: What encoded its observations, where these have a structure to give back; else None.
        is_trunk: Whether it was built with `num_outputs=None`: without a state, it maps rows, and no padding is shown
            to it.
        is_vector: Whether its observations are vectors.
        last_output: The output of the last call.
        held: The models that `assemble` has built it around, by the names of its constructor's arguments.
        part: The plugin's part it is, for messages: "model 'glu' of acme-glu 1.0"; empty for a class of the program's.
        unclaimed: Inside a head: what that leaves of the observations it is given.
        asked: The methods called on it so far, of the keys of `nested_losses.ADDITIONS`.
        timed: T and B of the last pass, where a recurrent model saw it as `[T, B, ...]`; else None.
    """

    #: Whether a trace is made that takes no empty list, so that an empty tuple stands for no state; `bool` says no.
    in_trace: Any = staticmethod(bool)
    #: Attributes that belong to the graph of the last pass, and so cannot be copied or pickled.
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

    def run(self, model: ModelV2, inputs: dict[str, Any], state: list[Any], seq_lens: Tensor | None) -> Any:
        """Call `forward`, with the hooks a framework has around it."""
        return model.forward(inputs, state, seq_lens)

    def check_trace(self, model: ModelV2, what: str) -> None:
        """Raise a `StaleOutputError` where the last call belongs to a trace that is over; there need be none."""

    def hold(self, model: ModelV2, models: Mapping[str, Any]) -> None:
        """Note the models that a model is built around; `assemble` calls it once that is built.

        Args:
            model: The model.
            models: By the names of the constructor's arguments: `"trunk"`, `"value_trunk"`.
        """
        self.held = {name: held for name, held in models.items() if is_model(held)}

    def weights(self, model: ModelV2) -> dict[str, Any]:
        """Return all weights (see `ModelV2.get_weights`)."""
        return model.get_weights()

    def set_weights(self, model: ModelV2, weights: Mapping[str, Any]) -> None:
        """Set all weights (see `ModelV2.set_weights`)."""
        model.set_weights(weights)

    def as_tensors(self, model: ModelV2, obs: Any) -> Any:
        """Return observations with each NumPy array a tensor; of a framework whose tensors are arrays, as they are."""
        return obs

    def flat(self, obs: Tensor) -> Any:
        """Return an unstructured observation as [B, size]; a structure is its own flat form."""
        shape = getattr(obs, "shape", None)
        return obs if shape is None or len(shape) == 2 else self.ops.flat(obs)

    def batch_major(self, rows: Tensor, steps: int, sequences: int) -> Any:
        """Return rows `[T * B, ...]` that follow one another as `[T, B]` does as `[B, T]` does."""
        raise NotImplementedError

    def padding(self, seq_lens: Tensor, rows: Tensor) -> Any:
        """Return where the padding stands in rows, or None where there is none."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(self.of_last_pass)}


def is_model(value: Any) -> bool:
    """Whether a value is a model whose base was initialised."""
    return isinstance(getattr(value, "_rlcatalog", None), ModelInternals)


def real_rows(model: ModelV2, inputs: dict[str, Any], padding: Any) -> dict[str, Any]:
    """Return a model's input without the rows of padding."""
    real = {name: value for name, value in inputs.items() if name != "seq_lens"}
    repeats = {name: view.batch_repeat_value for name, view in model.view_requirements.items()}
    for name in {"obs", "obs_flat", *repeats} & real.keys():
        real[name] = padding.take(real[name], repeats.get(name, 1))
    return real


def get_submodel(model: ModelV2, name: str) -> Any:
    """Return what a model holds as `trunk` or `value_trunk`, by attribute or as the catalog has noted; or None."""
    own = getattr(model, name, None)
    return own if is_model(own) else model._rlcatalog.held.get(name)


def models_inside(model: ModelV2) -> dict[str, Any]:
    """Return a model's `inner_models()`, and what it is built around where an override has left it out."""
    models_by_place: dict[str, Any] = type(model).inner_models(model)
    held = model._rlcatalog.held
    if held:
        known, models = set[int](), list(models_by_place.values())
        for inner in models:
            known.add(id(inner))
            models += [deeper for deeper in models_inside(inner).values() if id(deeper) not in known]
        left = {f"{name}: ": inner for name, inner in held.items() if id(inner) not in known}
        models_by_place = {**models_by_place, **left}
    return models_by_place


def weights_of(model: ModelV2) -> dict[str, Any]:
    """Return all weights of a model, whatever its class calls `get_weights` (see `ModelV2.get_weights`)."""
    weights: dict[str, Any] = model._rlcatalog.weights(model)
    return weights


def set_weights_of(model: ModelV2, weights: Mapping[str, Any]) -> None:
    """Set all weights of a model, whatever its class calls `set_weights` (see `ModelV2.set_weights`)."""
    model._rlcatalog.set_weights(model, weights)


def in_row_order(value_function: Callable[..., Any]) -> Callable[..., Any]:
    """Complete the `value_function` of a recurrent model, which flattens what `forward_rnn` has kept.

    After a time-major pass its values follow one another as `[T, B]` does; the caller's rows follow as `[B, T]`.
    """

    @functools.wraps(value_function)
    def completed(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        inside = self._rlcatalog
        timed, inside.timed = inside.timed, None  # what an override takes from its base is turned once
        try:
            value = value_function(self, *args, **kwargs)
        finally:
            inside.timed = timed
        return value if timed is None else inside.batch_major(value, *timed)

    return completed


def check_time_major(model: ModelV2, shape: tuple[int | None, ...], steps: int | None, sequences: int | None) -> None:
    """Raise unless the outputs of a time-major `forward_rnn` begin with `[T, B]`; None is an unknown length.

    Raises:
        ModelContractError: They do not.
    """
    known = zip(shape[:2], (steps, sequences), strict=False)
    if len(shape) > 2 and any(None not in (n, expected) and n != expected for n, expected in known):
        raise ModelContractError(
            f"{type(model).__name__}.forward_rnn() must return outputs [T, B, n] under _time_major, as its inputs are"
            f" [T, B, obs_size]: expected ({steps}, {sequences}, n), found {shape}. Do not turn them back."
        )
