"""PyTorch backend for `Policy`, which acts, computes values and scores actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from rlcatalog.actions import ActionDistribution, entropy_of, params_given
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, ObservationError
from rlcatalog.frameworks import (
    Array,
    Evaluation,
    PolicyParts,
    TensorTree,
    lengths_of,
    memory_of,
    views_of,
)
from rlcatalog.spaces import map_tensors
from rlcatalog_torch.dtypes import HALF, dtype_of, floats_as, to_float32_at_least
from rlcatalog_torch.nn import values_of
from rlcatalog_torch.ops import OPS, flat_sample, flatten_rows
from rlcatalog_torch.private_api import are_transforms_active, leaf_of, version_of
from rlcatalog_torch.sequences import Padding


class TorchBackend:
    """Backend that runs a policy's model and distribution in PyTorch.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: PolicyParts) -> None:
        self.policy = policy
        self.model: Any = policy.model
        self.dist_class: Any = policy.dist_class
        self.output_checker = policy.output_checker
        self.scalar = policy.action_codec.scalar
        self.width = policy.action_codec.width
        self.outputs = policy.output_checker.outputs
        self.has_value = policy.has_value
        #: Whether the graph of a score has been checked, which is done once.
        self._is_graph_checked = False
        #: `seq_lens` of the last acting step: a 1 for each row, kept for the next step.
        self._lengths = torch.ones(0, dtype=torch.int32)
        self.device = torch.device("cpu")
        #: The device of the policy's tensors, with its number, as their attribute `device` is.
        self.tensor_device = self.device
        self.on_cpu = True
        #: How to convert a tensor to an array; `to` replaces it for a GPU.
        self.numpy: Callable[[Tensor], Array] = torch.Tensor.numpy
        first_weight = next(self.model.parameters(), None)
        if first_weight is not None and first_weight.device.type != "cpu":
            # The user passed a module that was on this device; the policy follows it.
            policy.device = str(first_weight.device)
            self.to(policy.device)

    # --- acting -----------------------------------------------------------------------------------

    def step(
        self,
        inputs: dict[str, Any],
        memory: list[Tensor],
        mask: Tensor | None,
        explore: bool | Tensor,
        rows: int | None = None,
        policy_only: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor, list[Tensor]]:
        """Do one acting step on tensors: run the model and call `draw`.

        Args:
            inputs: The model's input, from `inputs_of`.
            memory: The model's memory: tensors `[B, ...]`.
            mask: Action mask `[B, m]`, or None.
            explore: See `draw`.
            rows: B, for checking shapes; None while recording a graph that leaves B open.
            policy_only: Whether to leave out a critic of its own.

        Returns:
            Raw actions and their logp from `draw`, the value `[B]` or None, the parameters from
            `draw`, and the memory returned by the model.
        """
        lengths = self._single_steps(inputs["obs"], rows) if memory else None
        if policy_only:
            outputs, new_memory = self.model.run_policy(inputs, memory, lengths)
        else:
            outputs, new_memory = self.model(inputs, memory, lengths)
        sample, logp, dist_inputs = self.draw(outputs, mask, explore, rows)
        value = None
        if self.has_value and not policy_only:
            value = values_of(self.model, rows)
        return sample, logp, value, dist_inputs, new_memory

    def draw(
        self, outputs: Tensor, mask: Tensor | None, explore: bool | Tensor, rows: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw raw actions from a model's outputs.

        Args:
            outputs: The outputs of the model's last pass, `[B, n]`.
            mask: Action mask `[B, m]`, or None.
            explore: Whether to sample actions instead of taking the deterministic ones. A tensor
                while a graph is recorded, so that the graph's caller can choose.
            rows: B, for checking shapes, or None.

        Returns:
            Raw actions in the form that `logp` expects, `[B]` or `[B, width]`; their logp `[B]`;
            and the parameters `[B, n]` that score them.

        Raises:
            ModelContractError: The model or the distribution returned a wrong shape, or a tensor
                from a different framework.
        """
        # Each check below repeats its condition here, because acting calls this often and a call
        # of the checker is slow. The checker then raises the error that says what is wrong.
        if rows is not None and (
            type(outputs) is not Tensor or outputs.shape != (rows, self.outputs)
        ):
            self.output_checker.check_outputs(outputs, rows)
        if outputs.dtype in HALF:
            outputs = outputs.float()
        if mask is not None:
            outputs = self.dist_class.masked(outputs, mask)
        dist = self.dist_class(outputs, self.model)
        if isinstance(explore, Tensor):
            random_sample = flat_sample(dist.sample())
            likely_sample = flat_sample(dist.deterministic_sample())
            sample = torch.where(explore, random_sample, likely_sample.to(random_sample.dtype))
            flat = sample
            # `dist` remembers the sample that it drew last, which may not be the selected one.
            dist = self.dist_class(outputs, self.model)
        else:
            sample = dist.sample() if explore else dist.deterministic_sample()
            flat = sample
            if type(sample) is not Tensor:
                method = "sample" if explore else "deterministic_sample"
                self.output_checker.check_tensors(sample, method)
                flat = flat_sample(sample)
        if rows is not None and flat.shape != (rows, self.width):
            # If the width is 1, `[rows]` is right, too.
            if self.width != 1 or flat.shape != (rows,):
                self.output_checker.check_sample(flatten_rows(flat) if flat.ndim else flat, rows)
        logp = dist.logp(flat)
        if rows is not None and (type(logp) is not Tensor or logp.shape != (rows,)):
            self.output_checker.check_rows(logp, rows, "logp")
        return flat, logp, params_given(dist, sample)

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

        The results are tensors if `obs` is one, otherwise arrays; the new memory is tensors if
        `memory` is. With `policy_only`, a critic of its own is left out, and the value is None.
        """
        if self.model.training:
            self.model.eval()
        rows = len(obs)
        returns_tensors = isinstance(obs, Tensor)
        inputs, states = self.inputs_of(obs, views, memory)
        # A caller's tensor may have been written to before; one made of an array has version 0.
        versions = _versions(_versioned_tensors(inputs, states)) if returns_tensors else {}
        # In inference mode, operations are faster, but training cannot use the resulting tensors.
        with torch.no_grad() if returns_tensors else torch.inference_mode():
            allowed = None if mask is None else self.tensor(mask)
            sample, logp, value, dist_inputs, new_states = self.step(
                inputs, states, allowed, explore, rows, policy_only
            )
            # For arrays without views, the usual case, `_is_written` is quicker than the check.
            if returns_tensors or views or self._is_written(inputs["obs"], states):
                self._check_untouched(_versioned_tensors(inputs, states), versions)
            new_memory: tuple[Any, ...] = ()
            if states:
                if isinstance(memory[0], Tensor):
                    new_memory = tuple(map(to_float32_at_least, new_states))
                else:
                    new_memory = self._memory_arrays(new_states)
            # Raw actions are `[B, width]`, even if the distribution draws `[B]`.
            raw = sample if returns_tensors else self.numpy(sample)
            if raw.ndim != 2:
                raw = raw.reshape(rows, self.width)
            if returns_tensors:
                return raw, logp, value, dist_inputs, new_memory
            value_array = None if value is None else self.numpy(value)
            return raw, self.numpy(logp), value_array, self.numpy(dist_inputs), new_memory

    def _is_written(self, obs: Tensor, states: list[Tensor]) -> bool:
        """Return whether a model has written to tensors that `inputs_of` made of arrays, whose
        version is 0 until then.
        """
        if version_of(obs):
            return True
        # On another device, a state is a copy.
        return self.on_cpu and any(map(version_of, states))

    def _memory_arrays(self, states: Iterable[Tensor]) -> tuple[Array, ...]:
        """Return a model's new states as arrays."""
        arrays = []
        for state in states:
            # A state from outside inference mode is an input or a weight, so keep a copy.
            if not state.is_inference():
                state = state.clone()
            arrays.append(self.numpy(to_float32_at_least(state)))
        return tuple(arrays)

    def values(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: tuple[Array, ...]
    ) -> Any:
        """Return value estimates without creating a distribution: a tensor if `obs` is one,
        otherwise a NumPy array.
        """
        if self.model.training:
            self.model.eval()
        inputs, states = self.inputs_of(obs, views, memory)
        returns_tensor = isinstance(obs, Tensor)
        with torch.no_grad() if returns_tensor else torch.inference_mode():
            # A caller's tensor may have been written to before; one made of an array has version 0.
            versions = _versions(_versioned_tensors(inputs, states)) if returns_tensor else {}
            lengths = self._single_steps(inputs["obs"], len(obs)) if memory else None
            self.model({**inputs, "values_only": True}, states, lengths)
            self._check_untouched(_versioned_tensors(inputs, states), versions)
            value = values_of(self.model, len(obs))
            return value if returns_tensor else self.numpy(value)

    def inputs_of(
        self, obs: Array | Tensor, views: Mapping[str, Any], memory: Sequence[Array | Tensor]
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Return the model's input at one step and its memory, both as tensors.

        Call this method outside inference mode, so that tensors count in-place writes.

        Args:
            obs: Encoded observations `[B, ...]`: an array or a tensor.
            views: The views of past steps, keyed by name.
            memory: The model's memory `[B, ...]`.
        """
        dtype = dtype_of(self.model)
        inputs: dict[str, Any] = {
            "obs": self.tensor(obs, dtype),
            "is_training": False,
            "single_steps": True,
        }
        for name, view in views.items():
            inputs[name] = self._tensors(view, dtype)
        return inputs, [self.tensor(part, dtype) for part in memory]

    def _single_steps(self, obs: Tensor, rows: int | None) -> Tensor:
        """Return the lengths of one-step sequences; reuse the last call's tensor if it fits."""
        if rows is None:
            return torch.ones(obs.shape[0], dtype=torch.int32, device=self.device)
        if self._lengths.shape[0] != rows:
            with torch.inference_mode(False):
                self._lengths = torch.ones(rows, dtype=torch.int32, device=self.device)
        return self._lengths

    # --- scoring ----------------------------------------------------------------------------------

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        """Score stored actions; see `Policy.evaluate`."""
        model = self.model
        if not model.training:
            model.train()
        dtype = dtype_of(model)
        inputs = {
            name: self._tensors(view, dtype) for name, view in views_of(self.policy, batch).items()
        }
        inputs["obs"] = self.tensor(batch["obs"], dtype)
        rows = inputs["obs"].shape[0]
        outputs, value = self._score_pass(inputs, batch, dtype)
        dist_inputs = to_float32_at_least(outputs)
        if batch.get("mask") is not None:
            allowed = self.tensor(batch["mask"]).bool()
            dist_inputs = self.dist_class.masked(dist_inputs, allowed)
        dist = self.dist_class(dist_inputs, model)
        raw = self.tensor(batch["raw_action"], dist_inputs.dtype)
        if self.scalar and raw.ndim == 2:
            # `logp` takes actions of one number as `[B]`.
            raw = raw[:, 0]
        logp = dist.logp(raw)
        entropies, entropy_kind = entropy_of(dist, flat_sample, entropy)
        kl = self._kl(batch, dist, raw)
        for numbers, method in ((logp, "logp"), (entropies, "entropy"), (kl, "kl")):
            if numbers is not None and (type(numbers) is not Tensor or numbers.shape != (rows,)):
                self.output_checker.check_rows(numbers, rows, method)
        if not self._is_graph_checked and logp.requires_grad:
            terms = [term for term in (logp, entropies, value) if term is not None]
            self._check_graph(dist_inputs, terms)
        return Evaluation(logp, entropies, entropy_kind, value, dist, kl)

    def _score_pass(
        self, inputs: dict[str, Any], batch: Mapping[str, Any], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        """Run the model on a training batch; return its outputs and values, one row per step.

        Args:
            inputs: The batch's observations and views, as tensors.
            batch: The batch, with the lengths of its sequences and the memory before them.
            dtype: The dtype of the model's floating-point inputs.
        """
        if self.policy.memory and batch.get("restarts") is not None:
            return self._score_steps(inputs, batch, dtype)
        flags = {"is_training": True}
        padding: Padding | None = None
        lengths: Tensor | None = None
        states: list[Tensor] = []
        if self.policy.memory:
            lengths, padding, states = self._sequences(batch, dtype)
            flags["outputs_only"] = True
            # A view of past steps may have one row for several steps, anything else has one each.
            steps_per_row = self.policy.views.training_repeats
            inputs = {
                name: padding.fill(rows, steps_per_row.get(name, 1))
                for name, rows in inputs.items()
            }
        inputs_to_check = _versioned_tensors(inputs, states)
        versions = _versions(inputs_to_check)
        outputs, _ = self.model({**inputs, **flags}, states, lengths)
        self._check_untouched(inputs_to_check, versions)
        padded_rows = inputs["obs"].shape[0]
        if type(outputs) is not Tensor or outputs.shape != (padded_rows, self.outputs):
            self.output_checker.check_outputs(outputs, padded_rows)
        value = values_of(self.model, padded_rows) if self.has_value else None
        if padding is not None:
            outputs, value = padding.take((outputs, value))
        return outputs, value

    def _score_steps(
        self, inputs: dict[str, Any], batch: Mapping[str, Any], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        """Run the model step by step on sequences of equal length, in which episodes begin at the
        rows that `"restarts"` names; see `_score_pass`.

        The steps in which episodes begin need not be known on the host, so nothing waits for the
        device.
        """
        policy = self.policy
        rows = inputs["obs"].shape[0]
        steps, restarts = self._restarts(batch, rows)
        sequences = rows // steps
        timed = map_tensors(inputs, lambda part: part.reshape(sequences, steps, *part.shape[1:]))
        memory = memory_of(policy, batch, sequences)
        states = [self.tensor(part, dtype) for part in memory]
        initial = [self._constant_rows(part, sequences, dtype) for part in policy.memory.initial]
        past = self._past_of(batch, sequences, dtype)
        initial_past = [
            self._constant_rows(part, sequences, dtype) for part in policy.memory.initial_past
        ]
        lengths = self._single_steps(inputs["obs"], sequences)
        outputs = []
        values = []
        for t in range(steps):
            is_new = restarts[:, t]
            states = _restarted(states, initial, is_new)
            past = _restarted(past, initial_past, is_new)
            inputs_of_step = map_tensors(timed, lambda part: part[:, t])  # noqa: B023  (called at once)
            inputs_of_step |= {"is_training": True, "single_steps": True}
            inputs_to_check = _versioned_tensors(inputs_of_step, states)
            versions = _versions(inputs_to_check)
            outputs_of_step, new_states = self.model(inputs_of_step, states, lengths)
            self._check_untouched(inputs_to_check, versions)
            if type(outputs_of_step) is not Tensor or outputs_of_step.shape != (
                sequences,
                self.outputs,
            ):
                self.output_checker.check_outputs(outputs_of_step, sequences)
            outputs.append(outputs_of_step)
            if self.has_value:
                values.append(values_of(self.model, sequences))
            new_memory, new_past = policy.memory.after(states, new_states, past, OPS)
            states = list(new_memory)
            past = list(new_past)
        value = torch.stack(values, 1).flatten() if values else None
        return torch.stack(outputs, 1).flatten(0, 1), value

    def _restarts(self, batch: Mapping[str, Any], rows: int) -> tuple[int, Tensor]:
        """Return the length T of a batch's sequences, and where episodes begin, booleans `[S, T]`.

        Raises:
            ModelContractError: The length is not an integer, or the columns do not fit the rows.
            NotServedError: A view has fewer rows than the observations.
        """
        repeats = {name: n for name, n in self.policy.views.training_repeats.items() if n != 1}
        if repeats:
            raise NotServedError(
                f"batch['restarts']: {self.policy.model_name} requests views with"
                f" batch_repeat_value {repeats}, which have no row for each step. Pass the lengths"
                " of sequences as batch['seq_lens']."
            )
        steps: Any = batch.get("seq_lens")
        is_integer = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
        if not is_integer or steps < 1 or rows % steps:
            raise ModelContractError(
                "batch['seq_lens']: with 'restarts', expected the length of all sequences, an"
                f" integer that divides {rows} rows; found {steps!r}."
            )
        restarts = self.tensor(batch["restarts"])
        if restarts.dtype is not torch.bool or restarts.shape != (rows,):
            raise ModelContractError(
                f"batch['restarts']: expected {rows} booleans, one for each row; found"
                f" {restarts.dtype} of shape {tuple(restarts.shape)}."
            )
        return int(steps), restarts.view(rows // steps, steps)

    def _past_of(
        self, batch: Mapping[str, Any], sequences: int, dtype: torch.dtype
    ) -> list[Tensor]:
        """Return `State.past` at the start of a batch's sequences."""
        # Either a `State` that acting returned, or only the arrays of its memory, without a past.
        past = getattr(batch.get("state"), "past", ())
        initial_past = self.policy.memory.initial_past
        if len(past) != len(initial_past):
            return [self._constant_rows(part, sequences, dtype) for part in initial_past]
        return [self.tensor(part, dtype) for part in past]

    def _constant_rows(self, part: Array, rows: int, dtype: torch.dtype) -> Tensor:
        """Return a part of the memory at the start of an episode for several rows."""
        constant: Tensor = floats_as(OPS.constant(part, self), dtype)
        return constant.expand(rows, *constant.shape)

    def _check_untouched(self, inputs: Mapping[str, Tensor], versions: Mapping[str, int]) -> None:
        """Check that a model has not written to an input, which may share memory with the caller's
        array.

        Args:
            inputs: The inputs.
            versions: Their versions before the pass; 0 for inputs that it does not contain.

        Raises:
            ModelContractError: The version of an input has increased.
        """
        for name, version in _versions(inputs).items():
            if version != versions.get(name, 0):
                self.output_checker.refuse_written_input(name)

    def _check_graph(self, dist_inputs: Tensor, terms: list[Tensor]) -> None:
        """Check that samples carry no gradients, and that every weight that affects the result is a
        parameter.

        Raises:
            ModelContractError: A sample carries a gradient, or training would miss an unregistered
                weight.
        """
        # Inside a transform of torch.func, samples and leaves are placeholders without values.
        if are_transforms_active():
            return
        registered = {id(parameter) for parameter in self.model.parameters()}
        for leaf in leaves_of(terms):
            if isinstance(leaf, torch.nn.Parameter) and id(leaf) not in registered:
                self.output_checker.refuse_lost_weight(
                    _path_of_lost_weight(leaf, self.model), leaf.shape
                )
        gpus = [self.device] if self.device.type == "cuda" else []
        # The caller's random numbers must not depend on this check.
        with torch.random.fork_rng(gpus):
            sample = self.dist_class(dist_inputs, self.model).sample()
        if flat_sample(sample).requires_grad:
            self.output_checker.refuse_gradient("sample")
        self._is_graph_checked = True

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log density `[B]` of raw actions for stored parameters."""
        with torch.inference_mode():
            params = torch.from_numpy(np.array(dist_inputs)).to(self.device)
            raw = torch.from_numpy(np.array(raw_action)).to(self.device)
            if self.scalar:
                # `logp` takes actions of one number as `[B]`.
                raw = raw[:, 0]
            # Only floating-point actions are converted; choices stay integers.
            raw = floats_as(raw, params.dtype)
            dist = self.policy.stored_dist(params, self.model)
            return _copied(dist.logp(raw))

    def _kl(self, batch: Mapping[str, Any], dist: ActionDistribution, raw: Tensor) -> Tensor | None:
        """Return the divergence `[B]` of the stored distributions from `dist`; None if the batch
        has none.
        """
        if batch.get("dist_inputs") is None:
            return None
        stored_dist = self.policy.stored_dist
        params = params_given(dist, raw)
        old_params = self.tensor(batch["dist_inputs"], params.dtype)
        # A distribution may read its model. As in RLlib, the old one gets today's model, too.
        kl: Tensor = stored_dist(old_params, self.model).kl(stored_dist(params, self.model))
        return kl

    @staticmethod
    def device_of(name: str) -> str:
        """Return PyTorch's name of a device.

        Raises:
            ConfigError: The name is unknown, or PyTorch does not find this device.
        """
        if name == "auto":
            return _best_device()
        try:
            device = torch.device(name)
            # There is one CPU, and one "meta" device; PyTorch counts only the others.
            count = 1
            if device.type not in ("cpu", "meta"):
                count = torch.get_device_module(device).device_count()
        except RuntimeError as error:
            raise ConfigError(
                f"device={name!r}: expected cpu, cuda, cuda:1, …, mps or auto."
            ) from error
        if (device.index or 0) >= count:
            raise ConfigError(
                f"device={name!r}: PyTorch {torch.__version__} sees {count} devices of this kind."
                " Use cpu, or auto, which uses a GPU if there is one."
            )
        if device.type == "cpu":
            return "cpu"  # also for "cpu:0"
        return name

    def to(self, device: str) -> None:
        """Move the model to a device."""
        self.device = torch.device(device)
        self.tensor_device = torch.empty(0, device=self.device).device
        self.on_cpu = self.device.type == "cpu"
        self.numpy = torch.Tensor.numpy if self.on_cpu else _copied
        self.model.to(self.device)
        self._lengths = torch.ones(0, dtype=torch.int32, device=self.device)

    def random_state(self) -> dict[str, Array]:
        """Return the states of PyTorch's global generators for the CPU and for the
        policy's device.
        """
        states = {"cpu": torch.get_rng_state()}
        if not self.on_cpu and self.device.type != "meta":
            module = torch.get_device_module(self.device)
            states[self.device.type] = module.get_rng_state(self.device)
        return {name: state.numpy() for name, state in states.items()}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the states of PyTorch's global generators, and ignore a state for a
        different device.
        """
        torch.set_rng_state(torch.from_numpy(np.array(state["cpu"])))
        if self.device.type in state and not self.on_cpu:
            device_state = torch.from_numpy(np.array(state[self.device.type]))
            torch.get_device_module(self.device).set_rng_state(device_state, self.device)

    def tensor(self, value: Array | Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Convert an array or tensor to a tensor on the device.

        Args:
            value: The array or tensor.
            dtype: The dtype for floating-point numbers; other dtypes are kept.

        Raises:
            ObservationError: It is a tensor on another device.
        """
        if isinstance(value, Tensor):
            if value.device != self.tensor_device:
                self._refuse_device(value)
            tensor = value
        else:
            array = np.asarray(value)
            # PyTorch warns of read-only arrays and refuses negative strides. `carray` means
            # writeable, aligned and contiguous.
            if not array.flags.carray:
                array = array.copy()
            tensor = torch.from_numpy(array)
        if tensor.dtype is not dtype and tensor.is_floating_point():
            tensor = tensor.to(dtype)
        if self.on_cpu and tensor.is_cpu:
            return tensor
        return tensor.to(self.device)

    def _refuse_device(self, tensor: Tensor) -> NoReturn:
        raise ObservationError(
            f"expected tensors on the policy's device, {str(self.tensor_device)!r}; found one on"
            f" {str(tensor.device)!r}, of shape {tuple(tensor.shape)}, which is not copied for you."
            f" Move the policy, policy.to({str(tensor.device)!r}), or the tensor."
        )

    def _tensors(self, value: TensorTree, dtype: torch.dtype) -> Any:
        """Convert a structure of arrays to tensors; see `tensor`."""
        return map_tensors(value, lambda array: self.tensor(array, dtype))

    def _sequences(
        self, batch: Mapping[str, Any], dtype: torch.dtype
    ) -> tuple[Tensor, Padding, list[Tensor]]:
        """Return the lengths of a batch's sequences, their padding, and the memory at the start of
        each of them.
        """
        rows = len(batch["obs"])
        lengths = lengths_of(batch, rows)
        memory = memory_of(self.policy, batch, len(lengths))
        longest = max(lengths.tolist(), default=0)
        padding = Padding(lengths, longest, self.device)
        states = [self.tensor(part, dtype) for part in memory]
        return torch.from_numpy(lengths).to(self.device), padding, states


def _restarted(states: list[Tensor], initial: list[Tensor], is_new: Tensor) -> list[Tensor]:
    """Return states `[S, ...]` with the initial ones where an episode begins, booleans `[S]`."""
    restarted = []
    for state, first in zip(states, initial, strict=True):
        is_new_row = is_new.reshape(-1, *[1] * (state.ndim - 1))
        restarted.append(torch.where(is_new_row, first, state))
    return restarted


def _best_device() -> str:
    """Return PyTorch's name of a GPU, or of the CPU if there is no GPU."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def _versions(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the version of each tensor, that is, the number of in-place writes to its memory."""
    return {name: version_of(tensor) for name, tensor in tensors.items()}


def _versioned_tensors(
    input_dict: Mapping[str, Any], states: Sequence[Tensor] = ()
) -> dict[str, Tensor]:
    """Return a model's input tensors by name, except those whose in-place writes PyTorch does not
    count in a version.
    """
    versioned: dict[str, Tensor] = {}

    def walk(name: str, value: TensorTree) -> None:
        if isinstance(value, Tensor):
            # An inference tensor has no version; none shares memory with a caller's array.
            if not value.is_inference():
                versioned[name] = value
        elif isinstance(value, Mapping):
            for key, part in value.items():
                walk(f"{name}[{key!r}]", part)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                walk(f"{name}[{i}]", part)

    walk("input_dict", input_dict)
    for i, state in enumerate(states):
        walk(f"state[{i}]", state)
    return versioned


def leaves_of(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the leaves of the graph from which autograd computes the gradients of tensors."""
    functions = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    visited = set(functions)
    # The list grows while the loop goes through it.
    for function in functions:
        leaf = leaf_of(function)
        if leaf is not None:
            yield leaf
        # An entry is a function and the number of one of its outputs; None needs no gradient.
        inner_functions = {inner for inner, _ in function.next_functions if inner is not None}
        functions += inner_functions - visited
        visited |= inner_functions


def _path_of_lost_weight(weight: Tensor, model: torch.nn.Module) -> str:
    """Return where a model keeps a parameter that PyTorch did not register: the path of the list,
    tuple or dict that holds it, such as "encoder.layers[0]"; else "without a name".
    """
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            # PyTorch's own attributes, such as `_parameters`, hold what is registered.
            if name.startswith("_"):
                continue
            for key, item in _items_of(value):
                if _has_weight(item, weight):
                    return f"{path}.{name}[{key!r}]".lstrip(".")
    return "without a name"


def _items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys and values of a dict, or the indices and items of a list or tuple; nothing
    for other objects.
    """
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    return ()


def _has_weight(item: Any, weight: Tensor) -> bool:
    """Return whether an item is a weight, or a module that has it."""
    if isinstance(item, torch.nn.Module):
        return any(parameter is weight for parameter in item.parameters())
    return item is weight


def _copied(tensor: Tensor) -> Array:
    """Return a tensor of any device as an array."""
    return tensor.cpu().numpy()
