"""A policy as one function of tensors to tensors, from observations and noise to actions, in any framework."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import TensorOps
from rlcatalog_export.export_graph import ExportGraph
from rlcatalog_export.interface import Interface, Port

if TYPE_CHECKING:
    from rlcatalog_policy import Policy

Array = np.ndarray[Any, Any]

#: Numbers of rows of the batches that are tried before anything is exported.
_TRIED = (2, 3)


class PolicyFunction:
    """A policy as one function of tensors; a framework's class says how it draws from noise, and records it.

    Args:
        policy: A copy of the policy, for this object alone.
        ops: The operations of its framework.

    Attributes:
        policy: The policy.
        graph: What is around model and distribution.
        interface: Inputs and outputs.
        widths: How many random numbers a row each draw takes.

    Raises:
        NotServedError: The policy does something that cannot be exported.
    """

    def __init__(self, policy: Policy, ops: TensorOps) -> None:
        self.policy, self._ops = policy, ops
        self.widths: list[int] | None = None
        self.graph = ExportGraph(policy, ops)
        try:
            self.interface = self._try_batches()
        except NotServedError:
            if not self.graph.masked or policy.masks.key is not None:
                raise
            self.graph = ExportGraph(policy, ops, masked=False)  # its distribution takes no masks
            self.interface = self._try_batches()

    def new_noise(self, rows: int) -> Any:
        """Return noise that draws its numbers itself and counts them, as `widths`."""
        raise NotImplementedError

    def drawing(self, noise: Any) -> AbstractContextManager[Any]:
        """Return a context in which the framework draws from noise."""
        raise NotImplementedError

    def run(self, given: Mapping[str, Any], noise: Any) -> dict[str, Any]:
        """Return the outputs by name for inputs by name."""
        backend, ops = self.policy.backend, self._ops
        with self.drawing(noise):
            seen = self.graph.before(given)
            inputs, memory = backend.inputs_of(seen.obs, seen.views, seen.memory)
            explore = ~given["deterministic"]
            sample, logp, value, dist_inputs, new_memory = backend.step(inputs, memory, seen.mask, explore)
            raw = ops.flat(sample)
            outputs = self.graph.after(
                seen, raw, [ops.as_type(part, "float32") if ops.is_half(part) else part for part in new_memory]
            )
        outputs |= {"raw_action": raw, "logp": logp, "dist_inputs": dist_inputs}
        return outputs if value is None else {**outputs, "value": value}

    def example(self, port: Port, rows: int, rng: np.random.Generator) -> Array:
        """Return an array for an input: zeros that no model stumbles over, or numbers from the open interval (0, 1)."""
        if port.role == "deterministic":
            return np.array(False)
        shape, dtype, mask_steps = (rows, *port.shape), np.dtype(port.dtype), self.policy.masks.steps
        if port.role == "mask" or (mask_steps and port.steps[: len(mask_steps)] == mask_steps):
            return np.ones(shape, dtype)
        if port.role == "noise" or dtype.kind == "f":
            return (0.25 + 0.5 * rng.random(shape)).astype(dtype)
        return np.zeros(shape, dtype)

    def _try_batches(self) -> Interface:
        """Run the policy on two batches, which fills its caches, and return the interface that follows."""
        outputs: dict[str, Array] = {}
        widths: list[list[int]] = []
        rng = np.random.default_rng(0)
        for rows in _TRIED:
            noise = self.new_noise(rows)
            given = {port.name: self._ops.tensor(self.example(port, rows, rng)) for port in self.graph.inputs}
            outputs = {name: self._ops.array(tensor) for name, tensor in self.run(given, noise).items()}
            widths.append(noise.widths)
            for name, array in outputs.items():
                if array.shape[:1] != (rows,):
                    raise NotServedError(f"export: {name!r} has shape {array.shape} for {rows} rows.")
        if widths[0] != widths[1]:
            raise NotServedError(
                "export: the policy draws another number of random numbers for each row of a larger batch; found"
                f" {sum(widths[0])} for {_TRIED[0]} rows and {sum(widths[1])} for {_TRIED[1]}."
            )
        self.widths = widths[0]
        forms = {name: (array.dtype.name, array.shape[1:]) for name, array in outputs.items()}
        return self.graph.interface(forms, sum(widths[0]), self._ops.framework)
