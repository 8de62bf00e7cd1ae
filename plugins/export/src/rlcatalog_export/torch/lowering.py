"""A policy as one module of tensors to tensors: from observations and noise to actions, for `torch.export`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcatalog.errors import CatalogError, NotServedError
from rlcatalog_export import Exported, Interface, Port, Whole
from rlcatalog_export.torch.drawing import Drawing
from rlcatalog_export.torch.stopping import Suspects, stopped
from rlcatalog_torch import OPS, flatten_rows, widened

if TYPE_CHECKING:
    from rlcatalog_policy import Policy

#: Numbers of rows of the batches that are tried before anything is exported.
_TRIED = (2, 3)


class LoweredPolicy(nn.Module):
    """A copy of a policy as one function of tensors; `interface` says which.

    Args:
        policy: The policy; it is copied.
        replaced: Functions of PyTorch's that a format has no form of, and what to call in their place.

    Attributes:
        policy: The copy.
        interface: Inputs and outputs.

    Raises:
        NotServedError: The policy does something that cannot be exported.
    """

    def __init__(self, policy: Policy, replaced: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng([]):  # a model is built; what the policy draws next must not depend on it
            self.policy = copy.deepcopy(policy).to("cpu")
        model: Any = self.policy.model
        self.model: Any = model.eval()
        self._backend: Any = self.policy.backend
        self._replaced = replaced or {}
        self._whole = Whole(self.policy, OPS)
        self._widths: list[int] | None = None
        self.suspects = Suspects()
        self._names: tuple[str, ...] = ()
        try:
            self.interface = self._tried()
        except NotServedError:
            if not self._whole.masked or self.policy.masks.key is not None:
                raise
            self._whole = Whole(self.policy, OPS, masked=False)  # its distribution takes no masks
            self.interface = self._tried()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in the order of `interface.outputs` for the inputs in the order of `interface.inputs`."""
        given = {port.name: tensor for port, tensor in zip(self.interface.inputs, tensors, strict=True)}
        drawing = Drawing(tensors[0].shape[0], given.get("noise"), self._widths, self._replaced)
        drawing.suspects = self.suspects
        found = self._run(given, drawing)
        return tuple(found[name] for name in self._names)

    def examples(self, rows: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Return inputs of the right shapes and dtypes for a batch."""
        generator = np.random.default_rng(seed)
        return tuple(_example(port, rows, generator, self.policy.masks.steps) for port in self.interface.inputs)

    def _run(self, given: Mapping[str, Tensor], drawing: Drawing) -> dict[str, Tensor]:
        with drawing:
            seen = self._whole.before(given)
            inputs, states = self._backend.inputs_of(seen.obs, seen.views, seen.memory)
            explore = ~given["deterministic"]
            sample, logp, value, dist_inputs, new_states = self._backend.step(inputs, states, seen.mask, explore)
            raw = flatten_rows(sample)
            found = self._whole.after(seen, raw, [widened(part) for part in new_states] if states else ())
        found |= {"raw_action": raw, "logp": logp, "dist_inputs": dist_inputs}
        if value is not None:
            found["value"] = value
        # Whatever is an input as it is must be a tensor of its own.
        return {name: tensor.clone() if any(tensor is x for x in given.values()) else tensor
                for name, tensor in found.items()}  # fmt: skip

    def _tried(self) -> Interface:
        """Run the policy on two batches, which fills its caches, and return the interface that follows."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        widths: list[list[int]] = []
        generator = np.random.default_rng(0)
        with torch.inference_mode(False), torch.no_grad():
            for rows in _TRIED:
                given = {
                    port.name: _example(port, rows, generator, self.policy.masks.steps) for port in self._whole.inputs
                }
                drawing = Drawing(rows, replaced=self._replaced)
                outputs = self._run(given, drawing)
                widths.append(drawing.widths)
                for name, tensor in outputs.items():
                    if not tensor.ndim or tensor.shape[0] != rows:
                        raise NotServedError(f"export: {name!r} has shape {tuple(tensor.shape)} for {rows} rows.")
                found = {name: (str(x.dtype).removeprefix("torch."), tuple(x.shape[1:])) for name, x in outputs.items()}
        if widths[0] != widths[1]:
            raise NotServedError(
                "export: the policy draws another number of random numbers for each row of a larger batch; found"
                f" {sum(widths[0])} for {_TRIED[0]} rows and {sum(widths[1])} for {_TRIED[1]}."
            )
        self._widths, self._names = widths[0], tuple(found)
        return self._whole.interface(found, sum(widths[0]), "torch")


def exported_program(lowered: LoweredPolicy) -> Any:
    """Return the `torch.export.ExportedProgram` of a policy, of batches of any size.

    Raises:
        NotServedError: PyTorch cannot export it; the message names the line of the model or distribution that stopped
            it, where that is known.
    """
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({} if port.role == "deterministic" else {0: batch} for port in lowered.interface.inputs)
    try:
        # It warns of what models remember of their last pass, which is the copy's.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(lowered, lowered.examples(4), dynamic_shapes=(shapes,), strict=False)
    except CatalogError:
        raise
    except Exception as error:
        raise stopped(error, lowered.suspects, "cannot be exported") from error


def exported(lowered: LoweredPolicy) -> Exported:
    """Return what the kernel compares a written file with."""
    policy = lowered.policy

    def drawing(noise: np.ndarray[Any, Any]) -> AbstractContextManager[Any]:
        return Drawing(len(noise), torch.from_numpy(noise), replaced=lowered._replaced)

    return Exported(lowered.interface, policy, drawing)


def _example(port: Port, rows: int, generator: np.random.Generator, mask_steps: tuple[str, ...]) -> Tensor:
    """Return a tensor as an input: zeros that no model stumbles over, or numbers from the open interval (0, 1)."""
    if port.role == "deterministic":
        return torch.tensor(False)
    shape, dtype = (rows, *port.shape), np.dtype(port.dtype)
    if port.role == "mask" or (mask_steps and port.steps[: len(mask_steps)] == mask_steps):
        return torch.ones(shape, dtype=getattr(torch, dtype.name))
    if port.role == "noise" or dtype.kind == "f":
        return torch.from_numpy((0.25 + 0.5 * generator.random(shape)).astype(dtype))
    return torch.zeros(shape, dtype=getattr(torch, dtype.name))
