"""A policy as one traced function of tensors: from observations and noise to actions."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import rlcatalog_tf
from rlcatalog.errors import CatalogError, NotServedError, reason
from rlcatalog_export import Exported, Interface, Port, Whole
from rlcatalog_export.lines import line_of
from rlcatalog_tf import OPS, Noise, drawing_from, flatten_rows, tf, widened

if TYPE_CHECKING:
    from rlcatalog_policy import Policy

Array = np.ndarray[Any, Any]

#: Numbers of rows of the batches that are tried before anything is exported.
_TRIED = (2, 3)


class LoweredPolicy(tf.Module):  # type: ignore[misc]
    """A copy of a policy as one function of tensors; `interface` says which.

    Args:
        policy: The policy; it is copied.

    Attributes:
        policy: The copy.
        interface: Inputs and outputs.
        program: The function, traced for any number of rows: inputs by name to outputs by name.

    Raises:
        NotServedError: The policy does something that cannot be exported.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = copy.deepcopy(policy)
        self._backend: Any = self.policy.backend
        self._widths: list[int] | None = None
        self._whole = Whole(self.policy, OPS)
        try:
            self.interface = self._tried()
        except NotServedError:
            if not self._whole.masked or self.policy.masks.key is not None:
                raise
            self._whole = Whole(self.policy, OPS, masked=False)  # its distribution takes no masks
            self.interface = self._tried()
        self.program = self._traced()
        #: What the program reads; a module that is saved holds its variables.
        self.held = list(self.program.graph.variables)

    def _run(self, given: Mapping[str, Any], noise: Noise) -> dict[str, Any]:
        backend = self._backend
        with drawing_from(noise):
            seen = self._whole.before(given)
            inputs, memory = backend.given({"obs": seen.obs, **seen.views}), backend.given(list(seen.memory))
            explore = ~given["deterministic"]
            sample, logp, value, dist_inputs, returned = backend.step(inputs, memory, seen.mask, explore)
            raw = flatten_rows(sample)
            found = self._whole.after(seen, raw, [widened(part) for part in returned])
            found |= {"raw_action": raw, "logp": logp, "dist_inputs": dist_inputs}
            if value is not None:
                found["value"] = value
        return {name: tf.identity(tensor) for name, tensor in found.items()}

    def _tried(self) -> Interface:
        """Run the policy on two batches, and return the interface that follows."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        widths: list[list[int]] = []
        generator, steps = np.random.default_rng(0), self.policy.masks.steps
        for rows in _TRIED:
            given = {port.name: tf.constant(_example(port, rows, generator, steps)) for port in self._whole.inputs}
            noise = Noise(rows)
            outputs = self._run(given, noise)
            widths.append(noise.widths)
            for name, tensor in outputs.items():
                if not tensor.shape.rank or tensor.shape[0] != rows:
                    raise NotServedError(f"export: {name!r} has shape {tuple(tensor.shape)} for {rows} rows.")
            found = {name: (tensor.dtype.name, tuple(tensor.shape[1:])) for name, tensor in outputs.items()}
        if widths[0] != widths[1]:
            raise NotServedError(
                "export: the policy draws another number of random numbers for each row of a larger batch; found"
                f" {sum(widths[0])} for {_TRIED[0]} rows and {sum(widths[1])} for {_TRIED[1]}."
            )
        self._widths = widths[0]
        return self._whole.interface(found, sum(widths[0]), "tf")

    def _traced(self) -> Any:
        """Return the traced function.

        Raises:
            NotServedError: It cannot be traced, or draws by itself.
        """
        ports = self.interface.inputs
        signature = [
            tf.TensorSpec([] if port.role == "deterministic" else [None, *port.shape], port.dtype, port.name)
            for port in ports
        ]

        def run(*tensors: Any) -> dict[str, Any]:
            given = dict(zip((port.name for port in ports), tensors, strict=True))
            return self._run(given, Noise(None, given.get("noise"), self._widths))

        try:
            program = tf.function(run, input_signature=signature, autograph=False).get_concrete_function()
        except CatalogError:
            raise
        except Exception as error:
            line = line_of(error.__traceback__, tf, rlcatalog_tf)
            raise NotServedError(f"export: {line or 'this policy'} cannot be exported: {reason(error)}") from error
        for operation in _operations(program.graph):
            if "Random" in operation.type or operation.type in ("Multinomial", "TruncatedNormal"):
                line = line_of(operation.traceback, tf, rlcatalog_tf)
                raise NotServedError(
                    f"export: {line or operation.name} draws by itself ({operation.type}), and a file draws from given"
                    " noise alone: take draw_uniform, draw_normal, draw_gamma and draw_categorical of rlcatalog_tf."
                )
        return program


def constant_program(lowered: LoweredPolicy) -> Any:
    """Return a policy's program with its weights as constants, for what converts graphs."""
    convert = importlib.import_module("tensorflow.python.framework.convert_to_constants")

    return convert.convert_variables_to_constants_v2(lowered.program, lower_control_flow=False)


def exported(lowered: LoweredPolicy) -> Exported:
    """Return what the kernel compares a written file with."""
    policy, backend = lowered.policy, lowered._backend

    @contextmanager
    def drawing(noise: Array) -> Iterator[None]:
        with backend.untraced(Noise(len(noise), noise)):
            yield

    return Exported(lowered.interface, policy, drawing)


def _operations(graph: Any) -> Iterator[Any]:
    """Yield the operations of a graph and of the functions it calls."""
    yield from graph.get_operations()
    for function in graph._functions.values():
        yield from getattr(function, "graph", graph).get_operations()


def _example(port: Port, rows: int, generator: np.random.Generator, mask_steps: tuple[str, ...]) -> Array:
    """Return an array as an input: zeros that no model stumbles over, or numbers from the open interval (0, 1)."""
    if port.role == "deterministic":
        return np.array(False)
    shape, dtype = (rows, *port.shape), np.dtype(port.dtype)
    if port.role == "mask" or (mask_steps and port.steps[: len(mask_steps)] == mask_steps):
        return np.ones(shape, dtype)
    if port.role == "noise" or dtype.kind == "f":
        return (0.25 + 0.5 * generator.random(shape)).astype(dtype)
    return np.zeros(shape, dtype)
