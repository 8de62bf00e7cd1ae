"""A policy's step for one number of rows, recorded as a graph that also runs with different inputs
and weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.spaces import map_tensors
from rlcatalog_export.noise_blocks import NoiseBlocks
from rlcatalog_export.onnx_graph import bind_graph
from rlcatalog_export.torch.noise import TorchNoise
from rlcatalog_export.torch.recorder import TURNED, array_of, record
from rlcatalog_torch import HALF, dtype_of, flatten_rows, floats_as, to_float32_at_least

#: Constant weights are packed only once, but new weights need a new session. According to
#: measurements, this pays off for convolutions, and from this number of weights (a third of an LSTM
#: of 256 cells) and rows.
_LEAST_WEIGHTS = 200_000
_LEAST_ROWS = 4
_NOTHING = np.zeros(0, np.float32)


class _StepNoise(TorchNoise):
    """Noise for one step, whose numbers already lie in the open interval (0, 1)."""

    def numbers(self, columns: Any, shape: Any, dtype: torch.dtype) -> Tensor:
        """Return the next columns of the noise with the given shape and dtype."""
        return torch.as_tensor(columns).reshape(tuple(shape)).to(dtype, copy=True)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function or its replacement."""
        if func is torch.nn.functional.one_hot:
            func = _one_hot
        return super().__torch_function__(func, types, args, kwargs)


def _one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """Return one-hot vectors; unlike PyTorch's function, this one does not read the
    numbers first.
    """
    if num_classes < 0:
        raise NotServedError("freeze: pass num_classes to one_hot().")
    return (x.unsqueeze(-1) == torch.arange(num_classes)).long()


class StepGraph:
    """Recorded step of a policy for batches like a given one.

    Args:
        policy: The policy, on the CPU.
        given: Dict of the backend's inputs `obs`, `views`, `memory` and `mask`: arrays and
            structures of arrays.
        explore: Whether to sample actions instead of taking the deterministic ones.
        policy_only: Whether to leave out a critic of its own.

    Raises:
        NotServedError: An operation cannot be recorded, or the model has half precision.
    """

    def __init__(
        self,
        policy: Policy,
        given: Mapping[str, Any],
        explore: bool,
        policy_only: bool = False,
    ) -> None:
        self._policy = policy
        self._explore = explore
        self._policy_only = policy_only
        model: Any = policy.model
        self._dtype = dtype_of(model)
        if self._dtype in HALF:
            raise NotServedError(
                f"freeze: models with dtype {self._dtype} are not supported; use float32 or"
                " float64."
            )
        self._example = _tensors(given, self._dtype)
        self.rows = len(given["obs"])
        leaves: dict[str, Tensor] = {}
        for name, value in self._example.items():
            for i, leaf in enumerate(_leaves(value)):
                leaves[f"{name}{i}"] = leaf
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            # The first step only counts the random numbers that it draws.
            with _StepNoise(self.rows) as noise:
                self._act(self._example)
            self._widths = noise.widths
            if any(self._widths):
                leaves["noise"] = torch.full((self.rows, sum(self._widths)), 0.5)
            weights = weights_of(policy)
            with _in_small_steps():
                self._recording, self._outputs = record(self._step, leaves, weights)

        #: The graph's inputs by name. The graph reads these arrays, and `run` writes into them.
        self._inputs: dict[str, Array] = {}
        for name, tensor in leaves.items():
            self._inputs[name] = np.array(tensor.numpy(), order="C")
        self._obs = self._inputs["obs0"]
        self._mask = self._inputs.get("mask0", _NOTHING)
        self._memory_in = self._inputs_of("memory")
        self._views_in = self._inputs_of("views")
        #: Buffer for the random numbers of a step, and their number.
        self._noise = self._inputs.get("noise", _NOTHING).reshape(-1)
        self._noise_count = self._noise.size
        #: Number of steps so far.
        self.steps = 0
        weight_count = sum(tensor.numel() for tensor in self._recording.used.values())
        is_large = self.rows >= _LEAST_ROWS and weight_count >= _LEAST_WEIGHTS
        #: Whether the weights are constants of the session, so that new weights need a new session.
        self.fixed = self._recording.convolves or is_large
        # A parameter may have been converted and still be the same object.
        self._forms = {name: _form(tensor) for name, tensor in self._recording.used.items()}
        #: Tensors from which the weights are read.
        self._weights: dict[str, Array] = {}
        self.refresh(weights)

    def _inputs_of(self, role: str) -> list[Array]:
        return [array for name, array in self._inputs.items() if name.startswith(role)]

    def refresh(self, weights: Mapping[str, Tensor]) -> bool:
        """Use different weights from now on; return whether that is possible."""
        arrays: dict[str, Array] = {}
        for name in self._recording.used:
            tensor = weights.get(name.removesuffix(TURNED))
            if tensor is None or _form(tensor) != self._forms[name]:
                return False
            array = array_of(tensor)
            arrays[name] = array.T if name.endswith(TURNED) else array
        if self._weights and not self.fixed:
            # The session reads the weights from this memory.
            for name, array in arrays.items():
                self._weights[name][...] = array
            return True
        self._weights = {name: np.array(array, order="C") for name, array in arrays.items()}
        self._bind()
        return True

    def _bind(self) -> None:
        """Create the session, and keep its output arrays."""
        if self.fixed:
            model = self._recording.graph.model(self._outputs, fixed=self._weights)
            inputs = self._inputs
        else:
            model = self._recording.graph.model(self._outputs)
            inputs = {**self._inputs, **self._weights}
        forms = {output.name: (output.dtype, output.shape) for output in self._outputs}
        self._bound = inputs  # the session reads their memory
        self._run, outputs = bind_graph(model, inputs, forms)
        self._raw = outputs["raw_action"]
        self._logp = outputs["logp"]
        self._dist_inputs = outputs["dist_inputs"]
        self._value = outputs.get("value")
        self._memory = [outputs[name] for name in outputs if name.startswith("memory_")]

    def run(
        self,
        obs: Array,
        views: Mapping[str, Any],
        memory: tuple[Array, ...],
        mask: Array | None,
        noise: NoiseBlocks,
    ) -> tuple[Any, ...]:
        """Run the graph and return the result of a backend's `act`."""
        # The graph reads its inputs from these buffers, and overwrites its outputs in each run.
        self._obs[...] = obs
        for buffer, part in zip(self._memory_in, memory, strict=True):
            buffer[...] = part
        if views:
            for buffer, part in zip(self._views_in, _leaves(views), strict=True):
                buffer[...] = part
        if mask is not None:
            self._mask[...] = mask
        if self._noise_count:
            self._noise[...] = noise.take(self._noise_count)
        self._run()
        value = self._value
        return (
            self._raw.copy(),
            self._logp.copy(),
            None if value is None else value.copy(),
            self._dist_inputs.copy(),
            tuple([part.copy() for part in self._memory]),
        )

    def run_policy(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return PyTorch's results for the same batch and the random numbers of the last run."""
        noise = torch.from_numpy(self._inputs["noise"]) if self._noise_count else None
        with torch.no_grad(), _StepNoise(self.rows, noise, self._widths):
            outputs = self._act(_tensors(given, self._dtype))
        memory = tuple(outputs[f"memory_{i}"].numpy() for i in range(len(self._memory)))
        value = outputs["value"].numpy() if "value" in outputs else None
        return (
            outputs["raw_action"].numpy(),
            outputs["logp"].numpy(),
            value,
            outputs["dist_inputs"].numpy(),
            memory,
        )

    def _step(self, **leaves: Tensor) -> dict[str, Tensor]:
        """Act on inputs that are given leaf by leaf, in the order of `_leaves`."""
        noise = leaves.pop("noise", None)
        remaining = iter(leaves.values())
        given = {}
        for name, value in self._example.items():
            given[name] = map_tensors(value, lambda _: next(remaining))
        with _StepNoise(self.rows, noise, self._widths):
            return self._act(given)

    def _act(self, given: Mapping[str, Any]) -> dict[str, Tensor]:
        """Run the policy's model and distribution; return the step's results by name."""
        model: Any = self._policy.model
        model.eval()
        backend: Any = self._policy.backend
        inputs, states = backend.inputs_of(given["obs"], given["views"], given["memory"])
        sample, logp, value, dist_inputs, new_states = backend.step(
            inputs, states, given["mask"], self._explore, self.rows, self._policy_only
        )
        outputs = {"raw_action": flatten_rows(sample), "logp": logp, "dist_inputs": dist_inputs}
        if value is not None:
            outputs["value"] = value
        if states:
            for i, part in enumerate(new_states):
                outputs[f"memory_{i}"] = to_float32_at_least(part)
        return outputs


@contextmanager
def _in_small_steps() -> Iterator[None]:
    """Make PyTorch compute layers with supported operations instead of a single kernel for the
    whole layer.
    """
    kernels: Any = torch.backends.mkldnn
    before = kernels.enabled
    kernels.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        kernels.enabled = before


def weights_of(policy: Policy) -> dict[str, Tensor]:
    """Return the parameters and buffers of a policy's model as a dict of graph inputs."""
    model: Any = policy.model
    tensors: dict[Tensor, None] = dict.fromkeys([*model.parameters(), *model.buffers()])
    return {f"w{i}": tensor for i, tensor in enumerate(tensors)}


def _form(tensor: Tensor) -> tuple[torch.dtype, torch.Size, str]:
    return tensor.dtype, tensor.shape, tensor.device.type


def _tensors(given: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Copy arrays and nested arrays into tensors; all floating-point numbers get the
    given dtype.
    """

    def tensor(array: Array) -> Tensor:
        return floats_as(torch.from_numpy(np.array(array, order="C")), dtype)

    return {name: map_tensors(value, tensor) for name, value in given.items()}


def _leaves(value: Any) -> list[Any]:
    """Return the tensors or arrays in a structure, in order."""
    leaves: list[Any] = []
    map_tensors(value, leaves.append)
    return leaves
