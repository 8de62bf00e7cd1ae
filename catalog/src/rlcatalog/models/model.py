"""`ModelV2`: the framework-neutral base class of models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlcatalog.config.flat import FlatConfig
from rlcatalog.errors import ModelContractError, StaleOutputError, shown
from rlcatalog.models import nested_losses
from rlcatalog.models.bookkeeping import (
    ModelBookkeeping,
    get_submodel,
    new_bookkeeping,
    states_in,
    without_padding,
)
from rlcatalog.models.views import ViewRequirement
from rlcatalog.spaces.info import Space

if TYPE_CHECKING:
    from rlcatalog.frameworks.ops import Tensor


class ModelV2:
    """Base class of all models; derive from its subclasses `TorchModelV2` or `TFModelV2`.

    `model(input_dict, state, seq_lens)` restores the observation's structure, calls `forward` and
    stores its output. A model built with `num_outputs=None` is a trunk: it has no logits or value
    layers, and sets `self.num_outputs` to the width of its output. A trunk without a state maps
    single rows: from padded sequences, it receives only the real steps, and its output is padded
    with zeros.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        model_config: The flat model config.
        name: A name for the model.
        framework: The framework's name, such as `"torch"`.
    """

    def __init__(
        self,
        obs_space: Space,
        action_space: Space | None,
        num_outputs: int | None,
        model_config: Mapping[str, Any] | None,
        name: str | None,
        framework: str,
    ) -> None:
        self.obs_space = obs_space
        self.action_space = action_space
        self.num_outputs = num_outputs
        self.model_config = FlatConfig(model_config)
        self.name = name or "default_model"
        self.framework = framework
        self.time_major = bool(self.model_config.get("_time_major", False))
        self.view_requirements = {"obs": ViewRequirement(shift=0, space=obs_space)}
        self._rlcatalog_bookkeeping = new_bookkeeping(self)

    @property
    def num_outputs(self) -> int | None:
        """Width of the output as an `int`; None for a trunk that has not set it."""
        return self.__dict__.get("num_outputs")

    @num_outputs.setter
    def num_outputs(self, width: int | None) -> None:
        self.__dict__["num_outputs"] = int(width) if isinstance(width, Integral) else width

    # --- to implement -----------------------------------------------------------------------------

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the output for a batch. Override this, not `__call__`.

        Args:
            input_dict: `"obs"` (structured), `"obs_flat"` `[B, size]`, `"is_training"`,
                `"seq_lens"` for sequences, and requested views. Acting adds `"single_steps"`, which
                means that each row is a sequence of one step. `Policy.values` adds `"values_only"`:
                no action is chosen, so a mask need not allow any. For sequences, `Policy.evaluate`
                adds `"outputs_only"`: it ignores the returned state, which can be an empty list,
                and pads each sequence with copies of its last step. `"no_padding"` says that all
                sequences are equally long, so that every row is real. These four are True or
                missing.
            state: State tensors `[B, ...]`, one for each array that `get_initial_state()` returns.
            seq_lens: Sequence lengths `[B]`, int32, or None.

        Returns:
            The output `[B, num_outputs]` and the list of new state tensors.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement forward(input_dict, state, seq_lens)."
        )

    def value_function(self) -> Any:
        """Return the value estimates `[B]` from the last forward pass, without running another
        pass.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement value_function().")

    # The results of inner models always count, even if an override ignores them: see
    # `nested_losses`.

    @nested_losses.complete
    def custom_loss(
        self, policy_loss: Tensor | list[Tensor], loss_inputs: Mapping[str, Any]
    ) -> Any:
        """Return the loss to optimise; override this method to add terms.

        Args:
            policy_loss: The algorithm's loss: a scalar, or a list of scalars.
            loss_inputs: The training batch, with RLlib's column names. `"obs"` is encoded (see
                `restore_original_dimensions`), `"actions"` are raw: `[B]` for a Discrete, otherwise
                `[B, width]`.
        """
        return policy_loss

    @nested_losses.complete
    def metrics(self) -> dict[str, Any]:
        """Return scalars to report in addition to the learner's metrics."""
        return {}

    @nested_losses.complete
    def update_ops(self) -> list[Callable[[], Any]]:
        """Return callables that a training loop calls after each optimiser step."""
        return []

    def get_initial_state(self) -> list[Any]:
        """Return the state at the start of an episode: unbatched arrays or tensors; empty if there
        is none.
        """
        return []

    # --- to call ----------------------------------------------------------------------------------

    def __call__(
        self,
        input_dict: Mapping[str, Any] | Any,
        state: list[Any] | None = None,
        seq_lens: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """Run the model on a batch.

        Args:
            input_dict: At least `"obs"`: encoded observations `[B, *obs_space.shape]`, or a
                structure of them for a Dict or Tuple. Arrays become tensors. The dict is not
                changed.
            state: State tensors; by default `"state_in_0"`, `"state_in_1"`, … of `input_dict`.
            seq_lens: Sequence lengths; by default `input_dict["seq_lens"]`.

        Returns:
            The result of `forward`; if that returned no state, the state passed in.

        Raises:
            ModelContractError: `forward` did not return an (output, list of states) pair.
        """
        bookkeeping = self._rlcatalog_bookkeeping
        inputs = bookkeeping.copy_inputs(self, input_dict)
        if not state:
            state = states_in(inputs)
        if seq_lens is None:
            seq_lens = inputs.get("seq_lens")
        else:
            # A trunk that the model calls without lengths finds them in its input.
            inputs["seq_lens"] = seq_lens

        padding = None
        if bookkeeping.skips_padding and seq_lens is not None:
            padding = bookkeeping.padding_to_remove(self, inputs, seq_lens)
        if padding is not None:
            inputs = without_padding(self, inputs, padding)
            seq_lens = None

        bookkeeping.add_structured_and_flat_obs(self, inputs)
        output, new_state = _run_forward(self, inputs, state, seq_lens)

        # RLlib's contract: last_output() returns it until the next call.
        bookkeeping.last_output = output
        if padding is not None:
            output = padding.put_back(output)
        if not new_state:
            new_state = state
        return output, new_state

    def last_output(self) -> Any:
        """Return the output of the last call; for a trunk inside a memory, the output for the real
        rows.

        Raises:
            StaleOutputError: The model has not been called yet, or, in TensorFlow, not in this
                trace.
        """
        bookkeeping = self._rlcatalog_bookkeeping
        bookkeeping.check_trace(self, "last_output")
        if bookkeeping.last_output is None:
            raise StaleOutputError(f"{type(self).__name__}: call the model before last_output().")
        return bookkeeping.last_output

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context manager that `forward` runs in; override this method to add one."""
        return _NO_CONTEXT

    def inner_models(self) -> dict[str, ModelV2]:
        """Return the models inside this one, by the prefix of their metrics.

        Their losses, metrics and `update_ops` are also included. The prefix `""` stands for the
        trunk that the catalog passed to the constructor or, without one, the attribute `trunk`.
        """
        models = {"": get_submodel(self, "trunk"), "value: ": get_submodel(self, "value_trunk")}
        return {where: model for where, model in models.items() if model is not None}

    def is_time_major(self) -> bool:
        """Return whether sequences have the shape `[T, B, ...]`."""
        return self.time_major

    def get_weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all weights and buffers under canonical names and layouts, the same in both
        frameworks.

        Saving and loading use these weights, even if a class overrides `get_weights`.
        """
        return self._rlcatalog_bookkeeping.weights(self)

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Set all weights to the `get_weights()` result of a model with the same structure, in
        either framework.
        """
        self._rlcatalog_bookkeeping.set_weights(self, weights)

    # --- for the kernel: names that begin with _rlcatalog are reserved ----------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in nested_losses.ADDITIONS:
            override = vars(cls).get(name)
            if isinstance(override, FunctionType):
                setattr(cls, name, nested_losses.complete(override, name))

    _rlcatalog_bookkeeping: ModelBookkeeping


_NO_CONTEXT: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()


def _run_forward(
    model: ModelV2, inputs: dict[str, Any], state: list[Any], seq_lens: Tensor | None
) -> tuple[Any, list[Any]]:
    """Call a model's `forward` inside its `context()`, and return its output and its new state.

    Raises:
        ModelContractError: `forward` did not return an (output, list of states) pair.
    """
    if type(model).context is ModelV2.context:
        # The default context does nothing; entering it would only take time.
        result = model._rlcatalog_bookkeeping.run(model, inputs, state, seq_lens)
    else:
        with model.context():
            result = model._rlcatalog_bookkeeping.run(model, inputs, state, seq_lens)
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    if not is_pair:
        raise ModelContractError(
            f"{name_method(model, 'forward')} must return a tuple (output, state), found"
            f" {type(result).__name__}."
        )
    output, new_state = result
    if not isinstance(new_state, list):
        raise ModelContractError(
            f"{name_method(model, 'forward')} must return its state as a list, found"
            f" {type(new_state).__name__}."
        )
    return output, new_state


def inner_model(model: ModelV2 | None) -> Any:
    """Return the trunk of a model, or None; also None if the argument is not a model."""
    if not isinstance(model, ModelV2):
        return None
    return type(model).inner_models(model).get("")


def part_of(model: ModelV2 | None) -> str:
    """Return text such as `" (model 'glu' of acme-glu 1.0)"` for error messages; empty for a
    registered class.
    """
    # A user's class may have failed before its base was initialised.
    bookkeeping = getattr(model, "_rlcatalog_bookkeeping", None)
    if bookkeeping is None or not bookkeeping.part:
        return ""
    return f" ({bookkeeping.part})"


def name_method(model: ModelV2, method: str) -> str:
    """Return the name of a model's method with its part and plugin, for error messages."""
    return f"{type(model).__name__}.{method}(){part_of(model)}"


class HasOutputLayers(Protocol):
    """A model whose attribute `outputs` holds its last layers, or None for a trunk."""

    @property
    def outputs(self) -> Any:
        """The framework's `OutputLayers`."""


def last_values(model: HasOutputLayers, features: Tensor | None) -> Any:
    """Return the value estimates `[B]` from a model's last forward pass.

    Args:
        model: The model.
        features: The input of the value layer in that pass, or None.

    Raises:
        StaleOutputError: The model has not been called yet, or is a trunk, which has no value
            layer.
    """
    if features is None:
        reason = "call the model first" if model.outputs is not None else "it was built as a trunk"
        raise StaleOutputError(f"{type(model).__name__} has no value estimate: {reason}.")
    return model.outputs.values(features)


def check_features(trunk: ModelV2, width: int | None) -> None:
    """Check that a trunk's features have the width `num_outputs`.

    Raises:
        ModelContractError: The width differs.
    """
    if width != trunk.num_outputs:
        raise ModelContractError(
            f"{type(trunk).__name__} declared num_outputs={trunk.num_outputs}, but its forward()"
            f" returned {width} values per row{part_of(trunk)}."
        )


def check_values(model: ModelV2, value: Tensor, rows: int | None = None) -> None:
    """Check that value estimates have the shape `[B]` or `[B, 1]`.

    Args:
        model: The model.
        value: The result of the model's `value_function`.
        rows: B, if known.

    Raises:
        ModelContractError: The shape differs. Broadcast against rewards `[B]`, such values would
            give wrong results.
    """
    shape = getattr(value, "shape", None)  # a user's method may return anything
    if shape is not None and _is_one_per_row(shape, rows):
        return
    what = shown(value) if shape is None else f"shape {tuple(shape)}"
    if rows is not None:
        what += f" for {rows} rows"
    raise ModelContractError(
        f"{name_method(model, 'value_function')} must return one number per row, [B] or [B,"
        f" 1]; found {what}."
    )


def _is_one_per_row(shape: Sequence[int | None], rows: int | None) -> bool:
    """Return whether a shape is `[B]` or `[B, 1]`, and B the number of rows, if that is known."""
    if len(shape) not in (1, 2):
        return False
    if len(shape) == 2 and shape[1] != 1:
        return False
    return rows is None or shape[0] == rows


def check_weights(
    model: ModelV2, model_shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, Any]
) -> None:
    """Check that `weights` has the names and shapes of the model's own weights, `model_shapes`.

    Raises:
        ModelContractError: A name is missing or unknown, or a shape differs.
    """
    missing = sorted(set(model_shapes) - set(weights))
    unknown = sorted(set(weights) - set(model_shapes))
    wrong_shapes = []
    for name in sorted(set(model_shapes) & set(weights)):
        shape = tuple(np.shape(weights[name]))
        expected = tuple(model_shapes[name])
        if shape != expected:
            wrong_shapes.append(f"{name}: {shape} instead of {expected}")
    if missing or unknown or wrong_shapes:
        raise ModelContractError(
            f"{type(model).__name__}: these weights belong to a different model. Missing:"
            f" {missing or 'none'}; unknown: {unknown or 'none'}; wrong shape:"
            f" {wrong_shapes or 'none'}."
        )
