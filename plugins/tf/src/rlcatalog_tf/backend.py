"""TensorFlow backend for `Policy`, which acts, computes values and scores actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.actions import ActionDistribution, entropy_of, params_given
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import (
    Array,
    Evaluation,
    PolicyParts,
    Tensor,
    TensorTree,
    lengths_of,
    memory_of,
    views_of,
)
from rlcatalog.models import ModelV2, check_values, set_weights_of, weights_of
from rlcatalog_tf.dtypes import dtype_of, floats_as, to_float32_at_least
from rlcatalog_tf.nn import values_of
from rlcatalog_tf.ops import flat_sample, flatten_rows
from rlcatalog_tf.random import RandomSource, drawing_from, new_generator
from rlcatalog_tf.sequences import Padding
from rlcatalog_tf.variables import has_unbuilt_layers


class TFBackend:
    """Backend that runs a policy's model and distribution in TensorFlow; it traces acting once for
    each signature.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: PolicyParts) -> None:
        self.policy = policy
        self.device = "/cpu:0"
        #: The random generator for distributions.
        self.generator: Any = new_generator(self.device)
        #: Whether acting is traced. Otherwise it runs eagerly.
        self._traces = True
        self._attach(policy.model)

    def _attach(self, model: ModelV2) -> None:
        """Set the model, and read from it and from the policy what acting needs."""
        policy = self.policy
        self.model: Any = model
        self.dist_class: Any = policy.dist_class
        self.output_checker = policy.output_checker
        self.scalar = policy.action_codec.scalar
        self.has_value = policy.has_value
        self._set_input_dtype()
        #: Traced functions, by the arguments of `_runner`.
        self._traced: dict[tuple[bool | None, bool, bool], Any] = {}
        # A Keras layer creates its variables in its first call. Tracing and training need them.
        if has_unbuilt_layers(model):
            inputs, memory = self._example()
            # explore=True, because some distributions have no deterministic sample.
            self.step(inputs, memory, mask=None, explore=True)
            # The new variables may have another dtype.
            self._set_input_dtype()

    def _set_input_dtype(self) -> None:
        """Set the dtype of the model's floating-point inputs (see `rlcatalog_tf.dtypes`)."""
        dtype = dtype_of(self.model)
        self.floats = dtype
        encoded = np.dtype(self.policy.encoded_space.dtype)
        self.dtype = np.dtype(dtype.as_numpy_dtype) if encoded.kind == "f" else encoded

    def _example(self) -> tuple[dict[str, Any], list[Any]]:
        """Return an input and a memory, each with one row, in the model's format."""
        policy = self.policy
        obs = np.zeros((1, *policy.preprocessor.shape), self.dtype)
        seen = policy.views.see(policy.views.start(1), obs)
        views = {name: seen[name] for name in policy.views.acting_names}
        return self.inputs_of(obs, views, policy.memory.start(1))

    def act(
        self,
        obs: Array | Tensor,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Array | Tensor | None,
        explore: bool,
        policy_only: bool = False,
    ) -> tuple[Any, ...]:
        """Return raw actions, logp, value or None, the distribution's parameters, and the memory.

        The memory is arrays; the others are tensors if `obs` is one, otherwise arrays. With
        `policy_only`, a critic of its own is left out, and the value is None.
        """
        rows = obs.shape[0]
        if rows == 0:
            return self._act_on_no_rows(obs, views, mask, explore, policy_only)
        has_mask = mask is not None
        run = self._program(explore, has_mask, policy_only)
        arguments = self._arguments(obs, views, memory)
        if has_mask:
            arguments.append(tf.constant(mask))
        try:
            raw, logp, value, dist_inputs, *new_memory = run(*arguments)
        except tf.errors.InvalidArgumentError:
            # A check of the model failed inside the trace. Repeating the call eagerly raises the
            # model's error, which says more.
            self._runner(explore, has_mask, policy_only)(*arguments)
            raise
        if not self.has_value or policy_only:
            value = None  # a trace returns zeros
        step: tuple[Any, ...] = (raw, logp, value, dist_inputs)
        if isinstance(obs, np.ndarray):
            step = tuple(None if part is None else part.numpy() for part in step)
        # The number of rows is unknown while tracing, so it is checked here.
        if any(part is not None and len(part) != rows for part in step):
            # One of these calls raises the error that says what is wrong.
            self._runner(explore, has_mask, policy_only)(*arguments)
            raw_actions = step[0]
            self.output_checker.check_sample(raw_actions, rows)
            self.output_checker.check_rows(logp, rows, "logp")
        return *step, tuple(to_float32_at_least(part).numpy() for part in new_memory)

    def _act_on_no_rows(
        self,
        obs: Array | Tensor,
        views: Mapping[str, Any],
        mask: Array | Tensor | None,
        explore: bool,
        policy_only: bool,
    ) -> tuple[Any, ...]:
        """Return the results of `act` for an empty batch, as the empty part of a step with one row:
        TensorFlow's compiled convolutions fail on empty batches.
        """
        if mask is not None:
            mask = tf.ones([1, *mask.shape[1:]], tf.bool)
        step = self.act(*self._one_row(obs, views), mask, explore, policy_only)
        return tuple(tf.nest.map_structure(lambda part: part[:0], step))

    def values(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...]
    ) -> Any:
        """Return value estimates without creating a distribution: a tensor if `obs` is one,
        otherwise a NumPy array.
        """
        rows = obs.shape[0]
        if rows == 0:
            # The empty part of a call with one row, for the reason of `_act_on_no_rows`.
            return self.values(*self._one_row(obs, views))[:0]
        # `explore=None` computes values.
        run = self._program(explore=None, masked=False, policy_only=False)
        value = run(*self._arguments(obs, views, memory))
        check_values(self.model, value, rows)
        if isinstance(obs, np.ndarray):
            return value.numpy()
        return value

    def _one_row(
        self, obs: Array | Tensor, views: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any], tuple[Array, ...]]:
        """Return inputs and a memory in the same form, with one row each."""

        def make_row(part: Array | Tensor) -> Any:
            zeros = tf.zeros([1, *part.shape[1:]], part.dtype)
            return zeros.numpy() if isinstance(part, np.ndarray) else zeros

        view_rows = tf.nest.map_structure(make_row, dict(views))
        return make_row(obs), view_rows, self.policy.memory.start(1)

    def _arguments(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...]
    ) -> list[Any]:
        """Return the inputs and the memory as a flat list of tensors, as a trace takes them."""
        if obs.dtype != self.dtype:
            if isinstance(obs, np.ndarray):
                obs = obs.astype(self.dtype)
            else:
                obs = tf.cast(obs, self.dtype)
        states = [floats_as(tf.constant(part), self.floats) for part in memory]
        if not views:
            # Without `tf.nest`, which takes as long as a small layer.
            return [tf.constant(obs), *states]
        return [*tf.nest.flatten(self._tensors({"obs": obs, **views})), *states]

    def _program(self, explore: bool | None, masked: bool, policy_only: bool) -> Any:
        """Return the traced function of `_runner`; the first call traces it."""
        if not self._traces:
            return self._runner(explore, masked, policy_only)
        key = (explore, masked, policy_only)
        if key not in self._traced:
            self._traced[key] = self._trace(explore, masked, policy_only)
        return self._traced[key]

    def _trace(self, explore: bool | None, masked: bool, policy_only: bool) -> Any:
        """Trace the function of `_runner` for any number of rows.

        Raises:
            ModelContractError: The function uses a trainable variable that the model does not list.
        """
        # The first axis of each argument is the rows; None leaves their number open.
        signature = [
            tf.TensorSpec([None, *part.shape[1:]], part.dtype)
            for part in tf.nest.flatten(self._example())
        ]
        if masked:
            signature.append(tf.TensorSpec([None, self.policy.masks.size], tf.bool))
        runner = self._runner(explore, masked, policy_only)
        run = tf.function(runner, input_signature=signature, autograph=False)
        traced = run.get_concrete_function()
        registered = {id(variable) for variable in self.model.variables()}
        for variable in traced.graph.variables:
            if variable.trainable and id(variable) not in registered:
                self.output_checker.refuse_lost_weight(variable.name, variable.shape)
        return traced

    def _runner(self, explore: bool | None, masked: bool, policy_only: bool) -> Callable[..., Any]:
        """Return the function that acts or that computes values. Its arguments are a flat list of
        tensors: the inputs, the memory and the mask.

        Args:
            explore: Whether acting samples actions; None for the function that computes values.
            masked: Whether the function's last argument is an action mask.
            policy_only: Whether acting leaves out a critic of its own.
        """
        # It has the structure into which the flat arguments are packed.
        example = self._example()

        def compute_values(*arguments: Tensor) -> Any:
            input_dict, memory = tf.nest.pack_sequence_as(example, arguments)
            with tf.device(self.device), drawing_from(self.generator):
                self._run_model({**input_dict, "values_only": True}, memory)
                return values_of(self.model, input_dict["obs"].shape[0])

        def act(*arguments: Tensor) -> tuple[Any, ...]:
            mask = None
            if masked:
                *arguments, mask = arguments  # type: ignore[assignment]
            input_dict, memory = tf.nest.pack_sequence_as(example, arguments)
            with tf.device(self.device), drawing_from(self.generator):
                sample, logp, value, dist_inputs, new_memory = self.step(
                    input_dict, memory, mask, explore, policy_only
                )
                # A traced function cannot return None.
                if value is None:
                    value = tf.zeros([tf.shape(logp)[0]])
                return flatten_rows(sample), logp, value, dist_inputs, *new_memory

        if explore is None:
            return compute_values
        return act

    def step(
        self,
        inputs: dict[str, Any],
        memory: list[Any],
        mask: Tensor | None,
        explore: bool | Tensor | None,
        policy_only: bool = False,
    ) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Do one acting step on tensors: run the model and call `draw`.

        Args:
            inputs: The model's input, from `inputs_of`.
            memory: The model's memory: tensors `[B, ...]`.
            mask: Action mask `[B, m]`, or None.
            explore: See `draw`.
            policy_only: Whether to leave out a critic of its own.

        Returns:
            Raw actions and their logp from `draw`, the value `[B]` or None, the parameters from
            `draw`, and the memory returned by the model.
        """
        rows = inputs["obs"].shape[0]
        outputs, new_memory = self._run_model(inputs, memory, policy_only)
        sample, logp, dist_inputs = self.draw(outputs, mask, explore, rows)
        value = None
        if self.has_value and not policy_only:
            value = values_of(self.model, rows)
        return sample, logp, value, dist_inputs, new_memory

    def inputs_of(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: Sequence[Array | Tensor]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the model's input and memory at one step, as tensors.

        Args:
            obs: Encoded observations `[B, ...]`: an array or a tensor.
            views: The views of past steps, keyed by name.
            memory: The model's memory `[B, ...]`.
        """
        return self._tensors({"obs": obs, **views}), self._tensors(list(memory))

    def draw(
        self,
        outputs: Tensor,
        mask: Tensor | None,
        explore: bool | Tensor | None,
        rows: int | None,
    ) -> tuple[Any, Any, Any]:
        """Draw raw actions from a model's outputs.

        Args:
            outputs: The outputs of the model's last pass, `[B, n]`.
            mask: Action mask `[B, m]`, or None.
            explore: Whether to sample actions instead of taking the deterministic ones. A tensor
                while tracing, so that the trace's caller can choose.
            rows: B, if known.

        Returns:
            Raw actions in the form that `logp` expects, `[B]` or `[B, width]`; their logp `[B]`;
            and the parameters `[B, n]` that score them.

        Raises:
            ModelContractError: The model or the distribution returned a wrong shape, or a tensor
                from a different framework.
        """
        self.output_checker.check_outputs(outputs, rows)
        outputs = to_float32_at_least(outputs)
        if mask is not None:
            outputs = self.dist_class.masked(outputs, mask)
        dist = self.dist_class(outputs, self.model)
        if tf.is_tensor(explore):
            random_sample = flat_sample(dist.sample())
            likely_sample = flat_sample(dist.deterministic_sample())
            sample = tf.where(explore, random_sample, tf.cast(likely_sample, random_sample.dtype))
            flat = sample
            # `dist` remembers the sample that it drew last, which may not be the selected one.
            dist = self.dist_class(outputs, self.model)
        elif explore:
            sample = dist.sample()
            self.output_checker.check_tensors(sample, "sample")
            flat = flat_sample(sample)
            # A sample must not carry gradients. Only a trace can tell: it has a graph.
            is_traced = not tf.executing_eagerly()
            if is_traced and _depends(flat, outputs):
                self.output_checker.refuse_gradient("sample")
        else:
            sample = dist.deterministic_sample()
            self.output_checker.check_tensors(sample, "deterministic_sample")
            flat = flat_sample(sample)
        # A sample without axes has no rows to flatten; the check refuses it.
        rows_of_sample = flat
        if flat.shape.rank != 0:
            rows_of_sample = flatten_rows(flat)
        self.output_checker.check_sample(rows_of_sample, rows)
        logp = dist.logp(flat)
        self.output_checker.check_rows(logp, rows, "logp")
        return flat, logp, params_given(dist, sample)

    def _run_model(
        self, inputs: dict[str, Any], memory: list[Any], policy_only: bool = False
    ) -> tuple[Any, list[Any]]:
        """Run the model, or its policy alone, on a single step of each episode."""
        lengths = tf.ones([tf.shape(inputs["obs"])[0]], tf.int32) if memory else None
        run = self.model.run_policy if policy_only else self.model
        outputs, returned = run(
            {**inputs, "is_training": False, "single_steps": True}, list(memory), lengths
        )
        if not memory:
            return outputs, []
        # The next step needs a state of the dtypes for which acting was traced. For a wrong number
        # of states, the policy raises an error later.
        if len(returned) == len(memory):
            returned = [tf.cast(new, old.dtype) for new, old in zip(returned, memory, strict=True)]
        return outputs, returned

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Score stored actions; see `Policy.evaluate`."""
        with tf.device(self.device), drawing_from(self.generator):
            inputs = self._tensors({"obs": batch["obs"], **views_of(self.policy, batch)})
            rows = inputs["obs"].shape[0]
            outputs, value = self._score_pass(inputs, batch)
            dist_inputs = to_float32_at_least(outputs)
            if batch.get("mask") is not None:
                allowed = tf.cast(self.tensor(batch["mask"]), tf.bool)
                dist_inputs = self.dist_class.masked(dist_inputs, allowed)
            dist = self.dist_class(dist_inputs, self.model)
            raw = self.tensor(batch["raw_action"], dist_inputs.dtype)
            if self.scalar and raw.shape.rank == 2:
                # `logp` takes actions of one number as `[B]`.
                raw = raw[:, 0]
            logp = dist.logp(raw)
            entropies, entropy_kind = entropy_of(dist, flat_sample, entropy)
            kl = self._kl(batch, dist, raw)
            for numbers, method in ((logp, "logp"), (entropies, "entropy"), (kl, "kl")):
                if numbers is not None:
                    self.output_checker.check_rows(numbers, rows, method)
            return Evaluation(logp, entropies, entropy_kind, value, dist, kl)

    def _score_pass(self, inputs: dict[str, Any], batch: Mapping[str, Any]) -> tuple[Any, Any]:
        """Run the model on a training batch; return its outputs and values, one row per step.

        Args:
            inputs: The batch's observations and views, as tensors.
            batch: The batch, with the lengths of its sequences and the memory before them.
        """
        flags = {"is_training": True}
        padding: Padding | None = None
        lengths = None
        memory: list[Any] = []
        if self.policy.memory:
            lengths, padding, memory = self._sequences(batch)
            flags["outputs_only"] = True
            # A view of past steps may have one row for several steps, anything else has one each.
            steps_per_row = self.policy.views.training_repeats
            inputs = {
                name: padding.fill(rows, steps_per_row.get(name, 1))
                for name, rows in inputs.items()
            }
        outputs, _ = self.model({**inputs, **flags}, memory, lengths)
        padded_rows = inputs["obs"].shape[0]
        self.output_checker.check_outputs(outputs, padded_rows)
        value = values_of(self.model, padded_rows) if self.has_value else None
        if padding is not None:
            outputs, value = padding.take((outputs, value))
        return outputs, value

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log density `[B]` of raw actions for stored parameters."""
        with tf.device(self.device):
            params = tf.constant(dist_inputs)
            raw = tf.constant(raw_action)
            if self.scalar:
                # `logp` takes actions of one number as `[B]`.
                raw = raw[:, 0]
            # Only floating-point actions are converted; choices stay integers.
            raw = floats_as(raw, params.dtype)
            dist = self.policy.stored_dist(params, self.model)
            return dist.logp(raw).numpy()  # type: ignore[no-any-return]

    def _kl(self, batch: Mapping[str, Any], dist: ActionDistribution, raw: Tensor) -> Any:
        """Return the divergence `[B]` of the stored distributions from `dist`; None if the batch
        has none.
        """
        if batch.get("dist_inputs") is None:
            return None
        stored_dist = self.policy.stored_dist
        params = params_given(dist, raw)
        old_params = self.tensor(batch["dist_inputs"], params.dtype)
        # As in RLlib, both get the current model, which a distribution may read.
        return stored_dist(old_params, self.model).kl(stored_dist(params, self.model))

    def _sequences(self, batch: Mapping[str, Any]) -> tuple[Any, Padding, list[Any]]:
        """Return the lengths of a batch's sequences, their padding, and the memory at the start of
        each of them.
        """
        lengths = batch.get("seq_lens")
        # A tensor of lengths, as in a trace, was checked by the caller.
        if not tf.is_tensor(lengths):
            lengths = tf.constant(lengths_of(batch, len(batch["obs"])))
        lengths = tf.cast(lengths, tf.int32)
        state = batch.get("state")
        if state is None:
            # All sequences start episodes, with the initial memory.
            memory = [
                tf.repeat(tf.convert_to_tensor(initial)[None], tf.shape(lengths)[0], axis=0)
                for initial in self.policy.memory.initial
            ]
        elif tf.executing_eagerly():
            memory = list(memory_of(self.policy, batch, int(lengths.shape[0])))
        else:
            # A traced batch has the policy's `State`, or only the memory in it.
            memory = getattr(state, "memory", state)
        return lengths, Padding(lengths), self._tensors(list(memory))

    @staticmethod
    def device_of(name: str) -> str:
        """Return TensorFlow's name of a device.

        Raises:
            ConfigError: The name is unknown, or TensorFlow does not find this device.
        """
        # "/gpu:1" → "gpu", ":", "1"; the last two are empty in "gpu".
        kind, colon, index = name.removeprefix("/").partition(":")
        if kind == "cpu" and index in ("", "0"):
            return name
        has_wrong_index = colon and not index.isdecimal()
        if kind not in ("auto", "cuda", "gpu") or has_wrong_index:
            raise ConfigError(
                f"device={name!r}: expected cpu, cuda, cuda:1, … or auto, with framework='tf'."
            )
        count = len(tf.config.list_logical_devices("GPU"))
        if name == "auto" and not count:
            return "cpu"
        if int(index or 0) >= count:
            raise ConfigError(
                f"device={name!r}: TensorFlow {tf.__version__} sees {count} GPUs. Use cpu, or"
                " auto, which uses a GPU if there is one."
            )
        return f"/gpu:{index or 0}"

    def to(self, device: str) -> None:
        """Rebuild the model on a device, because variables cannot be moved between devices."""
        self.device = device
        self.generator = new_generator(device, self.generator.state.numpy())
        weights = weights_of(self.model)
        with tf.device(device):
            self.policy.model = self.policy.make_model()
            self._attach(self.policy.model)
            set_weights_of(self.model, weights)

    def random_state(self) -> dict[str, Array]:
        """Return the state of the distributions' generator; `tf.random`, used by some models, has
        no readable state.
        """
        return {"generator": self.generator.state.numpy()}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of the distributions' generator."""
        self.generator.state.assign(state["generator"])

    @contextmanager
    def untraced(self, generator: RandomSource) -> Iterator[None]:
        """Return a context in which acting runs eagerly and distributions sample from the given
        generator.
        """
        traced_before = self._traces
        generator_before = self.generator
        self._traces = False
        self.generator = generator
        try:
            yield
        finally:
            self._traces = traced_before
            self.generator = generator_before

    def tensor(self, value: Array | Tensor, dtype: tf.DType = tf.float32) -> Any:
        """Convert an array or tensor to a tensor.

        Args:
            value: The array or tensor.
            dtype: The dtype for floating-point numbers; other dtypes are kept.
        """
        return floats_as(tf.convert_to_tensor(value), dtype)

    def _tensors(self, value: TensorTree) -> Any:
        """Convert a structure of arrays into the model's input tensors."""
        return tf.nest.map_structure(lambda part: self.tensor(part, self.floats), value)


def _depends(output: Tensor, inputs: Tensor) -> bool:
    """Return whether a trace's output has gradients with respect to its inputs."""
    if not output.dtype.is_floating:
        return False
    try:
        # It is None if no operation leads from the inputs to the output.
        (gradient,) = tf.gradients(output, inputs)
    except (LookupError, TypeError, ValueError):
        # TensorFlow defines no gradient for an operation between them.
        return False
    return gradient is not None
