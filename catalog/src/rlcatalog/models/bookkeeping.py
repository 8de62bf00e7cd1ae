"""Kernel-side state of a model, stored under `model._rlcatalog_bookkeeping`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks.ops import Tensor, TensorTree, tensor_ops
from rlcatalog.frameworks.table import find_framework
from rlcatalog.models.flatten_structured import flatten_structured
from rlcatalog.observations import Preprocessor, is_structure, preprocessor_of
from rlcatalog.observations.visible_observation import VisibleObservation
from rlcatalog.spaces.values import first_tensor

if TYPE_CHECKING:
    from rlcatalog.models.model import ModelV2


class Padding(Protocol):
    """Which rows of a batch of padded sequences are padding; each framework has its own class."""

    def take(self, padded: Any, repeat: int = 1) -> Any:
        """Return the rows that are not padding; of a view with one value for each `repeat` steps,
        the values of these rows.
        """

    def put_back(self, rows: Any) -> Any:
        """Return rows with zeros in place of the padding."""


class ModelBookkeeping:
    """Kernel-side state of one model; each framework has its own subclass, which it declares as its
    target `"bookkeeping"`.

    A subclass must implement `weights` and `set_weights`. The other methods of the last section are
    for what only some models need, such as sequences. What a framework lacks raises a
    NotServedError, which names the method.

    All state is in this one object, so that attributes of user classes cannot collide with it.
    Methods take the model as an argument, because a reference to it would create a cycle.

    Args:
        model: The model.

    Attributes:
        ops: The framework's tensor operations.
        preprocessor: The preprocessor of the model's observations if they have a structure to
            restore; otherwise None.
        is_trunk: Whether the model was built with `num_outputs=None`, so that it returns features.
        skips_padding: Whether the model, if it has no state, never sees padding. So do trunks, and
            the policy beside a critic.
        is_vector: Whether the model's observations are vectors.
        last_output: The output of the model's last call, which RLlib's `last_output()` returns.
        passed_models: The models that `assemble` passed to the model's constructor, by argument
            name.
        slot: The slot that the model fills, such as "trunk"; empty for a model built by hand.
        part: The part and its plugin as error messages name them, such as "model 'glu' of acme-glu
            1.0"; empty for a registered class.
        visible: The part of the observations that the model sees, if a head or `obs_groups` hides
            the rest from it; None if that is the whole observation.
        calls: The methods among the keys of `nested_losses.ADDITIONS` that were called on this
            model since the model around it began to compute its own result.
        time_major_sizes: T and B of the last pass if a recurrent model received it as
            `[T, B, ...]`; otherwise None. RLlib's `value_function()` returns the values of that
            pass.
        is_still: Whether the model's layers (but not its last layers) act in training as they do
            in acting, because their part is frozen.
        is_value_side_still: The same for the copies of its layers that only the value reads.
        frozen_weights: Names of the weights that would learn if their part were not frozen; only
            the outermost model has them.
        last_layers: The framework's class of last layers, which a model keeps under `outputs`; None
            if it has none.
    """

    #: Attributes of the last pass's graph, which cannot be copied or pickled.
    of_last_pass: ClassVar[tuple[str, ...]] = ("last_output", "time_major_sizes")
    last_layers: ClassVar[type | None] = None

    def __init__(self, model: ModelV2) -> None:
        preprocessor = preprocessor_of(model.obs_space)
        restores_structure = preprocessor is not None and preprocessor.structured
        self.ops = tensor_ops(model.framework)
        self.preprocessor: Preprocessor | None = preprocessor if restores_structure else None
        self.is_trunk = model.num_outputs is None
        self.skips_padding = self.is_trunk
        shape = getattr(model.obs_space, "shape", None)  # a user's class may pass anything
        self.is_vector = len(shape or ()) == 1
        self.last_output: Any = None
        self.passed_models: dict[str, ModelV2] = {}
        self.slot = ""
        self.part = ""
        self.visible: VisibleObservation | None = None
        self.calls: set[str] = set()
        self.time_major_sizes: tuple[Any, Any] | None = None
        self.is_still = False
        self.is_value_side_still = False
        self.frozen_weights: frozenset[str] = frozenset()

    # --- the steps of a call ----------------------------------------------------------------------

    def copy_inputs(self, model: ModelV2, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a model's input, without what is hidden from it, and
        with a tensor in place of an array of observations.

        The copy protects the caller's dict from a `forward` that changes its input.
        """
        if self.visible is None:
            inputs = dict(input_dict)
        else:
            inputs = self.visible.of(input_dict, self.ops)
        if isinstance(inputs["obs"], np.ndarray):
            inputs["obs"] = self.as_tensors(model, inputs["obs"])
        return inputs

    def padding_to_remove(
        self, model: ModelV2, inputs: Mapping[str, Any], seq_lens: Tensor
    ) -> Padding | None:
        """Return the padding that a model without a state must not see, or None if it sees every
        row.
        """
        if inputs.get("single_steps") or inputs.get("no_padding"):
            return None
        has_state = bool(list(model.get_initial_state()))
        if has_state:
            return None
        return self.padding(seq_lens, first_tensor(inputs["obs"]))

    def add_structured_and_flat_obs(self, model: ModelV2, inputs: dict[str, Any]) -> None:
        """Give a model's input both forms of its observations: `"obs"` structured, and
        `"obs_flat"` `[B, size]`.
        """
        obs = inputs["obs"]
        if self.preprocessor is None:  # there is no structure to restore
            if "obs_flat" not in inputs:
                inputs["obs_flat"] = obs if self.is_vector else self.flat(obs)
        elif not is_structure(obs):
            inputs.setdefault("obs_flat", obs)
            inputs["obs"] = self.preprocessor.restore(obs, self.ops)
        elif "obs_flat" not in inputs:  # the caller passed the structure alone
            inputs["obs"] = self.as_tensors(model, obs)
            inputs["obs_flat"] = flatten_structured(self.preprocessor, inputs["obs"], self.ops)

    def run(
        self, model: ModelV2, inputs: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> Any:
        """Call `forward` with the framework's hooks."""
        return model.forward(inputs, state, seq_lens)

    def has_last_layers(self, model: ModelV2) -> bool:
        """Return whether a model ends with the framework's layers for logits and value."""
        if self.last_layers is None:
            return False
        # A user's class may keep something else under this name.
        return isinstance(getattr(model, "outputs", None), self.last_layers)

    # --- what a framework implements --------------------------------------------------------------

    def check_trace(self, model: ModelV2, what: str) -> None:
        """Raise a `StaleOutputError` if the last call, if any, belongs to a finished trace."""

    def hold(self, model: ModelV2, models: Mapping[str, Any]) -> None:
        """Record the models inside a model; `assemble` calls it after construction.

        Args:
            model: The model.
            models: The inner models by argument name: `"trunk"`, `"value_trunk"`.
        """
        self.passed_models = {name: inner for name, inner in models.items() if is_model(inner)}

    def weights(self, model: ModelV2) -> dict[str, Any]:
        """Return all weights and buffers as arrays, by name (see `ModelV2.get_weights`).

        Names, layouts and dtypes are those of the model in PyTorch: a dense layer's `"….weight"` is
        `[outputs, inputs]`, float32.
        """
        raise self._not_implemented("read the weights of a model", "weights")

    def set_weights(self, model: ModelV2, weights: Mapping[str, Any]) -> None:
        """Set all weights from arrays (see `ModelV2.set_weights`); call `check_weights` first."""
        raise self._not_implemented("set the weights of a model", "set_weights")

    def weight_keys(self, model: ModelV2) -> dict[str, Hashable]:
        """Return a key for each weight by its name in `weights`; a weight has the same key in every
        model that contains it.

        Raises:
            NotServedError: The framework has no code for it.
        """
        raise NotServedError(
            f"framework {model.framework!r} cannot tell which weights belong to which part of a"
            " model. Remove freeze_parts and lr_parts."
        )

    def set_frozen_weights(self, model: ModelV2, names: Collection[str]) -> None:
        """Stop the learning of these weights of a model, and of no others that an earlier call
        stopped; set `frozen_weights`.

        Raises:
            NotServedError: The framework has no code for it.
        """
        raise NotServedError(
            f"freeze_parts: framework {model.framework!r} cannot stop the learning of single"
            " weights. Remove freeze_parts."
        )

    def _not_implemented(self, purpose: str, method: str) -> NotServedError:
        """Return the error for a method that the framework does not implement.

        Args:
            purpose: What the method is for, to complete "cannot …".
            method: Its name.
        """
        return NotServedError(
            f"framework {self.ops.framework!r} cannot {purpose}: {type(self).__name__} does not"
            f" implement {method}(). Derive a class from rlcatalog.models.ModelBookkeeping that"
            " does, and declare it as the framework's target 'bookkeeping'."
        )

    def as_tensors(self, model: ModelV2, obs: TensorTree) -> Any:
        """Convert NumPy arrays in observations into tensors; do nothing if the framework's tensors
        are NumPy arrays.
        """
        return obs

    def flat(self, obs: TensorTree) -> Any:
        """Return an unstructured observation as `[B, size]`; return a structure unchanged."""
        shape = getattr(obs, "shape", None)  # a user's structure has none
        if shape is None or len(shape) == 2:
            return obs
        return self.ops.flat(obs)

    def batch_major(self, rows: Tensor, steps: int, sequences: int) -> Any:
        """Reorder rows `[T * B, ...]` from time-major to batch-major: `[B * T, ...]`."""
        raise self._not_implemented("reorder the rows of time-major sequences", "batch_major")

    def padding(self, seq_lens: Tensor, rows: Tensor) -> Padding | None:
        """Return which rows are padding, or None if there is no padding."""
        raise self._not_implemented("tell padding from the rows of sequences", "padding")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(self.of_last_pass)}


def new_bookkeeping(model: ModelV2) -> ModelBookkeeping:
    """Return the state of a new model, of the class that its framework declares."""
    framework = find_framework(model.framework)
    if framework is None or framework.target("bookkeeping") is None:
        return ModelBookkeeping(model)
    bookkeeping_class: type[ModelBookkeeping] = framework.load("bookkeeping")
    return bookkeeping_class(model)


def is_model(value: Any) -> bool:
    """Return whether a value is a model whose base class has been initialised."""
    # Any object may be asked: what a user's class keeps under a name such as "trunk".
    return isinstance(getattr(value, "_rlcatalog_bookkeeping", None), ModelBookkeeping)


def states_in(inputs: Mapping[str, Any]) -> list[Any]:
    """Return the states `"state_in_0"`, `"state_in_1"`, … of a model's input; empty without any."""
    if "state_in_0" not in inputs:
        return []
    names = [f"state_in_{i}" for i in range(len(inputs))]
    return [inputs[name] for name in names if name in inputs]


def without_padding(model: ModelV2, inputs: dict[str, Any], padding: Padding) -> dict[str, Any]:
    """Return a model's input without padding rows."""
    real = {name: value for name, value in inputs.items() if name != "seq_lens"}
    repeats = {name: view.batch_repeat_value for name, view in model.view_requirements.items()}
    for name in {"obs", "obs_flat", *repeats} & real.keys():
        steps_per_value = repeats.get(name, 1)
        real[name] = padding.take(real[name], steps_per_value)
    return real


def get_submodel(model: ModelV2, name: str) -> Any:
    """Return a model's `trunk` or `value_trunk`, taken from its attribute or the catalog's record,
    or None.
    """
    attribute = getattr(model, name, None)  # a user's class may keep something else there
    if is_model(attribute):
        return attribute
    return model._rlcatalog_bookkeeping.passed_models.get(name)


def models_inside(model: ModelV2) -> dict[str, ModelV2]:
    """Return a model's `inner_models()`, including the trunk if an override omits it."""
    models_by_prefix: dict[str, ModelV2] = type(model).inner_models(model)
    passed_models = model._rlcatalog_bookkeeping.passed_models
    if not passed_models:
        return models_by_prefix
    listed = _ids_of_all(models_by_prefix.values())
    omitted = {}
    for name, inner in passed_models.items():
        if id(inner) not in listed:
            omitted[f"{name}: "] = inner
    return {**models_by_prefix, **omitted}


def _ids_of_all(models: Iterable[ModelV2]) -> set[int]:
    """Return the identities of models, and of all models inside them."""
    ids: set[int] = set()
    unvisited = list(models)
    while unvisited:
        model = unvisited.pop()
        if id(model) not in ids:
            ids.add(id(model))
            unvisited.extend(models_inside(model).values())
    return ids


def weights_of(model: ModelV2) -> dict[str, Any]:
    """Return all weights of a model; a `get_weights` of its class is ignored (see
    `ModelV2.get_weights`).
    """
    return model._rlcatalog_bookkeeping.weights(model)


def set_weights_of(model: ModelV2, weights: Mapping[str, Any]) -> None:
    """Set all weights of a model; a `set_weights` of its class is ignored (see
    `ModelV2.set_weights`).
    """
    model._rlcatalog_bookkeeping.set_weights(model, weights)


class RecurrentBase:
    """Framework-independent half of `RecurrentNetwork`, the base class for recurrent models."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        value_function = vars(cls).get("value_function")
        if isinstance(value_function, FunctionType):
            cls.value_function = _in_row_order(value_function)  # type: ignore[attr-defined]

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
    def reordered(self: ModelV2, *args: Any, **kwargs: Any) -> Any:
        bookkeeping = self._rlcatalog_bookkeeping
        steps_and_sequences = bookkeeping.time_major_sizes
        # The method may call its base's, which is wrapped too. Without the sizes, that one returns
        # the values as they are, so that they are reordered once, below.
        bookkeeping.time_major_sizes = None
        try:
            value = value_function(self, *args, **kwargs)
        finally:
            bookkeeping.time_major_sizes = steps_and_sequences
        if steps_and_sequences is None:
            return value
        return bookkeeping.batch_major(value, *steps_and_sequences)

    return reordered


def check_time_major(
    model: ModelV2, shape: tuple[int | None, ...], steps: int | None, sequences: int | None
) -> None:
    """Check that a time-major `forward_rnn` returned outputs `[T, B, ...]`; None means an unknown
    length.

    Raises:
        ModelContractError: The shape differs.
    """
    # Outputs of two axes have no time axis; the check of the model's output reports them.
    if len(shape) < 3:
        return
    if not (_may_be(shape[0], steps) and _may_be(shape[1], sequences)):
        raise ModelContractError(
            f"{type(model).__name__}.forward_rnn() must return outputs [T, B, n] under"
            f" _time_major, as its inputs are [T, B, obs_size]: expected ({steps}, {sequences},"
            f" n), found {shape}. Do not transpose them."
        )


def _may_be(length: int | None, expected: int | None) -> bool:
    """Return whether a length can be the expected one; None means that one of them is unknown."""
    return length is None or expected is None or length == expected
