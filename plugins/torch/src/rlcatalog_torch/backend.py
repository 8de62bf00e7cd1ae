"""PyTorch backend for `Policy`, which acts, computes values and scores actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog.actions import entropy_of, params_given
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import Array, Evaluation, PolicyParts, lengths_of, memory_of, views_of
from rlcatalog.spaces import map_tensors
from rlcatalog_torch.dtypes import HALF, dtype_of, floats_as, to_float32_at_least
from rlcatalog_torch.nn import values_of
from rlcatalog_torch.ops import flat_sample, flatten_rows
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
        self.contract = policy.output_checker
        self.scalar = policy.action_codec.scalar
        self.width, self.outputs = policy.action_codec.width, policy.output_checker.outputs
        #: Whether the checks that need a backward pass have passed.
        self._examined = False
        self.has_value = policy.has_value
        #: The lengths of the last step's sequences, all 1.
        self._lengths = torch.ones(0, dtype=torch.int32)
        self.device, self.on_cpu = torch.device("cpu"), True
        self.numpy: Callable[[Tensor], Array] = torch.Tensor.numpy
        first = next(self.model.parameters(), None)
        if first is not None and first.device.type != "cpu":  # an instance was there already
            policy.device = str(first.device)
            self.to(policy.device)

    # --- acting -----------------------------------------------------------------------------------

    def step(
        self,
        inputs: dict[str, Any],
        memory: list[Tensor],
        mask: Tensor | None,
        explore: bool | Tensor,
        rows: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor, list[Tensor]]:
        """Do one acting step on tensors: run the model and call `draw`.

        Args:
            inputs: The model's input, from `inputs_of`.
            memory: The model's memory: tensors `[B, ...]`.
            mask: Action mask `[B, m]`, or None.
            explore: See `draw`.
            rows: B, for checking shapes; None while recording a graph that leaves B open.

        Returns:
            Raw actions and their logp from `draw`, the value `[B]` or None, the parameters from
            `draw`, and the memory returned by the model.
        """
        lengths = self._single_steps(inputs["obs"], rows) if memory else None
        outputs, new_memory = self.model(inputs, memory, lengths)
        sample, logp, dist_inputs = self.draw(outputs, mask, explore, rows)
        return (
            sample,
            logp,
            values_of(self.model, rows) if self.has_value else None,
            dist_inputs,
            new_memory,
        )

    def draw(
        self, outputs: Tensor, mask: Tensor | None, explore: bool | Tensor, rows: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw raw actions from a model's outputs.

        Args:
            outputs: The outputs of the model's last pass, `[B, n]`.
            mask: Action mask `[B, m]`, or None.
            explore: Whether to sample actions instead of taking the most likely ones. If this is a
                tensor, a recorded graph supports both.
            rows: B, for checking shapes, or None.

        Returns:
            Raw actions in the form that `logp` expects, `[B]` or `[B, width]`; their logp `[B]`;
            and the parameters `[B, n]` that score them.

        Raises:
            ModelContractError: The model or the distribution returned a wrong shape, or a tensor
                from a different framework.
        """
        if rows is not None and (
            type(outputs) is not Tensor or outputs.shape != (rows, self.outputs)
        ):
            self.contract.check_outputs(outputs, rows)
        if outputs.dtype in HALF:
            outputs = outputs.float()
        if mask is not None:
            outputs = self.dist_class.masked(outputs, mask)
        dist = self.dist_class(outputs, self.model)
        if isinstance(explore, Tensor):
            drawn, likely = flat_sample(dist.sample()), flat_sample(dist.deterministic_sample())
            flat = sample = torch.where(explore, drawn, likely.to(drawn.dtype))
            # a new distribution, without cached samples.
            dist = self.dist_class(outputs, self.model)
        else:
            flat = sample = dist.sample() if explore else dist.deterministic_sample()
            if type(sample) is not Tensor:
                self.contract.check_tensors(sample, "sample" if explore else "deterministic_sample")
                flat = flat_sample(sample)
        if (
            rows is not None
            and flat.shape != (rows, self.width)
            and (self.width != 1 or flat.shape != (rows,))
        ):
            self.contract.check_sample(flatten_rows(flat) if flat.ndim else flat, rows)
        logp = dist.logp(flat)
        if rows is not None and (type(logp) is not Tensor or logp.shape != (rows,)):
            self.contract.check_rows(logp, rows, "logp")
        return flat, logp, params_given(dist, sample)

    def act(
        self,
        obs: Any,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Any,
        explore: bool,
    ) -> tuple[Any, ...]:
        """Return raw actions, logp, value or None, inputs and memory; for a tensor `obs`, all but
        memory are too.
        """
        if self.model.training:
            self.model.eval()
        rows, array, given = len(obs), self.numpy, isinstance(obs, Tensor)
        inputs, states = self.inputs_of(obs, views, memory)
        before = _versions(_counted(inputs)) if given else {}
        # So the results cannot be used in training.
        with torch.no_grad() if given else torch.inference_mode():
            allowed = None if mask is None else self.tensor(mask)
            sample, logp, value, dist_inputs, new_states = self.step(
                inputs, states, allowed, explore, rows
            )
            if (
                given
                or views
                or version_of(inputs["obs"])
                or (states and self.on_cpu and any(map(version_of, states)))
            ):
                self._check_untouched(_counted(inputs, states), before)
            new_memory: tuple[Array, ...] = ()
            if states:
                # A state from outside inference mode is an input or a weight, so keep a copy.
                owned = [part if part.is_inference() else part.clone() for part in new_states]
                new_memory = tuple(array(to_float32_at_least(part)) for part in owned)
            raw = sample if given else array(sample)
            if raw.ndim != 2:
                raw = raw.reshape(rows, self.width)
            if given:
                return raw, logp, value, dist_inputs, new_memory
            return (
                raw,
                array(logp),
                None if value is None else array(value),
                array(dist_inputs),
                new_memory,
            )

    def values(self, obs: Any, views: Mapping[str, Any], memory: tuple[Array, ...]) -> Any:
        """Return value estimates without creating a distribution: a tensor if `obs` is one,
        otherwise a NumPy array.
        """
        if self.model.training:
            self.model.eval()
        inputs, states = self.inputs_of(obs, views, memory)
        given = isinstance(obs, Tensor)
        with torch.no_grad() if given else torch.inference_mode():
            before = _versions(_counted(inputs)) if given else {}
            lengths = self._single_steps(inputs["obs"], len(obs)) if memory else None
            self.model({**inputs, "values_only": True}, states, lengths)
            self._check_untouched(_counted(inputs, states), before)
            value = values_of(self.model, len(obs))
            return value if given else self.numpy(value)

    def inputs_of(
        self, obs: Any, views: Mapping[str, Any], memory: Sequence[Any]
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
        views = views_of(self.policy, batch)
        dtype = dtype_of(model)
        input_dict: dict[str, Any] = {
            name: self._tensors(view, dtype) for name, view in views.items()
        }
        input_dict["obs"] = self.tensor(batch["obs"], dtype)
        rows = input_dict["obs"].shape[0]
        lengths, padding, states = (
            self._sequences(batch, dtype) if self.policy.memory else (None, None, [])
        )
        flags = {"is_training": True}
        if padding is not None:
            flags["outputs_only"], repeats = True, self.policy.views.training
            input_dict = {
                name: padding.fill(x, repeats.get(name, 1)) for name, x in input_dict.items()
            }
        counted = _counted(input_dict, states)
        before = _versions(counted)
        outputs, _ = model({**input_dict, **flags}, states, lengths)
        self._check_untouched(counted, before)
        places = input_dict["obs"].shape[0]
        if type(outputs) is not Tensor or outputs.shape != (places, self.outputs):
            self.contract.check_outputs(outputs, places)
        value = values_of(model, places) if self.has_value else None
        if padding is not None:
            outputs, value = padding.take((outputs, value))
        inputs = to_float32_at_least(outputs)
        if batch.get("mask") is not None:
            inputs = self.dist_class.masked(inputs, self.tensor(batch["mask"]).bool())
        dist = self.dist_class(inputs, model)
        raw = self.tensor(batch["raw_action"], inputs.dtype)
        raw = raw[:, 0] if self.scalar and raw.ndim == 2 else raw
        logp = dist.logp(raw)
        uncertainty, kind = entropy_of(dist, flat_sample, entropy)
        kl = self._kl(batch, dist, raw)
        for numbers, method in ((logp, "logp"), (uncertainty, "entropy"), (kl, "kl")):
            if numbers is not None and (type(numbers) is not Tensor or numbers.shape != (rows,)):
                self.contract.check_rows(numbers, rows, method)
        if not self._examined and logp.requires_grad:
            self._examine(inputs, [term for term in (logp, uncertainty, value) if term is not None])
        return Evaluation(logp, uncertainty, kind, value, dist, kl)

    def _check_untouched(self, inputs: Mapping[str, Tensor], before: Mapping[str, int]) -> None:
        """Check that a model has not written to an input, which may share memory with the caller's
        array.

        Raises:
            ModelContractError: The version of an input has increased; an input that is not in
                `before` started at 0.
        """
        for name, version in _versions(inputs).items():
            if version != before.get(name, 0):
                self.contract.refuse_written_input(name)

    def _examine(self, inputs: Tensor, terms: list[Tensor]) -> None:
        """Check that samples carry no gradients, and that every weight that affects the result is a
        parameter.

        Raises:
            ModelContractError: A sample carries a gradient, or training would miss an unregistered
                weight.
        """
        if are_transforms_active():  # draws and leaves are symbolic there
            return
        own = {id(parameter) for parameter in self.model.parameters()}
        for leaf in leaves_of(terms):
            if isinstance(leaf, torch.nn.Parameter) and id(leaf) not in own:
                self.contract.refuse_lost_weight(_place_of(leaf, self.model), leaf.shape)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # as if nothing had been drawn
            drawn = self.dist_class(inputs, self.model).sample()
        if flat_sample(drawn).requires_grad:
            self.contract.refuse_gradient("sample")
        self._examined = True

    def log_density(self, dist_inputs: Array, raw_action: Array) -> Array:
        """Return the log density `[B]` of raw actions for stored parameters."""
        with torch.inference_mode():
            params, raw = (
                torch.from_numpy(np.array(one)).to(self.device) for one in (dist_inputs, raw_action)
            )
            raw = floats_as(raw[:, 0] if self.scalar else raw, params.dtype)
            stored: Any = self.policy.stored_dist
            return _copied(stored(params, self.model).logp(raw))

    def _kl(self, batch: Mapping[str, Any], dist: Any, raw: Tensor) -> Tensor | None:
        if batch.get("dist_inputs") is None:
            return None
        stored: Any = self.policy.stored_dist
        params = params_given(dist, raw)
        # As in RLlib, both get the current model, which a distribution may read.
        old = stored(self.tensor(batch["dist_inputs"], params.dtype), self.model)
        kl: Tensor = old.kl(stored(params, self.model))
        return kl

    @staticmethod
    def device_of(name: str) -> str:
        """Return PyTorch's name of a device.

        Raises:
            ConfigError: The name is unknown, or PyTorch does not find this device.
        """
        if name == "auto":
            return (
                "cuda"
                if torch.cuda.is_available()
                else "mps"
                if torch.backends.mps.is_available()
                else "cpu"
            )
        try:
            device = torch.device(name)
            count = (
                1
                if device.type in ("cpu", "meta")
                else torch.get_device_module(device).device_count()
            )
        except RuntimeError as error:
            raise ConfigError(
                f"device={name!r}: expected cpu, cuda, cuda:1, …, mps or auto."
            ) from error
        if (device.index or 0) >= count:
            raise ConfigError(
                f"device={name!r}: PyTorch {torch.__version__} sees {count} devices of this kind."
                " Use cpu, or auto, which uses a GPU if there is one."
            )
        return "cpu" if device.type == "cpu" else name

    def to(self, device: str) -> None:
        """Move the model to a device."""
        self.device = torch.device(device)
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
            states[self.device.type] = torch.get_device_module(self.device).get_rng_state(
                self.device
            )
        return {name: state.numpy() for name, state in states.items()}

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the states of PyTorch's global generators, and ignore a state for a
        different device.
        """
        torch.set_rng_state(torch.from_numpy(np.array(state["cpu"])))
        if self.device.type in state and not self.on_cpu:
            held = torch.from_numpy(np.array(state[self.device.type]))
            torch.get_device_module(self.device).set_rng_state(held, self.device)

    def tensor(self, value: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Convert an array or tensor to a tensor on the device.

        Args:
            value: The array or tensor.
            dtype: The dtype for floating-point numbers; other dtypes are kept.
        """
        if isinstance(value, Tensor):
            tensor = value
        else:
            array = np.asarray(value)
            tensor = torch.from_numpy(array if array.flags.carray else array.copy())
        if tensor.dtype is not dtype and tensor.is_floating_point():
            tensor = tensor.to(dtype)
        return tensor if self.on_cpu and tensor.is_cpu else tensor.to(self.device)

    def _tensors(self, value: Any, dtype: torch.dtype) -> Any:
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
        padding = Padding(lengths, max(lengths.tolist(), default=0), self.device)
        return (
            torch.from_numpy(lengths).to(self.device),
            padding,
            [self.tensor(part, dtype) for part in memory],
        )


def _versions(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the version of each tensor, that is, the number of in-place writes to its memory."""
    return {name: version_of(tensor) for name, tensor in tensors.items()}


def _counted(input_dict: Mapping[str, Any], states: Sequence[Tensor] = ()) -> dict[str, Tensor]:
    """Return a model's input tensors by name, except those without a version."""
    counted: dict[str, Tensor] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            # Such a tensor has no version counter and does not share memory with an array.
            if not value.is_inference():
                counted[name] = value
        elif isinstance(value, Mapping):
            for key, part in value.items():
                walk(f"{name}[{key!r}]", part)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                walk(f"{name}[{i}]", part)

    walk("input_dict", input_dict)
    for i, state in enumerate(states):
        walk(f"state[{i}]", state)
    return counted


def leaves_of(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the leaves of the given tensors' autograd graph."""
    functions = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    known = set(functions)
    for function in functions:
        if (leaf := leaf_of(function)) is not None:
            yield leaf
        before = {
            function for function, _ in function.next_functions if function is not None
        } - known
        known |= before
        functions += before


def _place_of(leaf: Tensor, model: torch.nn.Module) -> str:
    """Return the path of a parameter inside a list, tuple or dict of a module, or else a
    description.
    """
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, dict | list | tuple):
                continue
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if item is leaf or (
                    isinstance(item, torch.nn.Module) and any(p is leaf for p in item.parameters())
                ):
                    return f"{path}.{name}[{key!r}]".lstrip(".")
    return "without a name"


def _copied(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
