"""Plain PyTorch modules as models."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcatalog_plain.common import Plain
from rlcatalog_torch import DenseStack, OutputLayers, TorchModelV2, dtype_of, floats_as
from rlcatalog_torch.private_api import original_of


class TorchModules:
    """PyTorch-specific code for models around an `nn.Module`; see `Plain`.

    Attributes:
        module: The module.
        in_order: Whether to copy images, so that channels also come first in memory. The copy takes
            time, but modules that call `view` on the result of a convolution need it.
    """

    channels_first = True
    in_order = False
    module: Any
    show: Any

    @staticmethod
    def is_module(value: Any) -> bool:
        """Return whether a value is an `nn.Module` or a subclass of `nn.Module`."""
        return issubclass(value if isinstance(value, type) else type(value), nn.Module)

    @staticmethod
    def unwrapped(module: Any) -> Any:
        """Return the module inside a result of `torch.compile`; the compiled version
        still runs it.
        """
        if (inner := original_of(module)) is None:
            return module
        # Not as an attribute, because a module's weights would be registered.
        vars(inner)["_rlcatalog_compiled"] = _CompiledForm(module)
        return inner

    def copied(self, module: nn.Module) -> nn.Module:
        """Return a deep copy of a module."""
        return copy.deepcopy(module)

    def run_module(self, module: nn.Module, x: Any, inputs: Mapping[str, Any]) -> Any:
        """Return the module's outputs."""
        compiled = module.__dict__.get("_rlcatalog_compiled")
        if compiled is None:
            return module(x)
        return compiled.of(module)(x)

    def try_module(self, module: nn.Module, rows: np.ndarray[Any, Any]) -> Any:
        """Run a module in eval mode, and then restore its mode, its buffers and the
        random state.
        """
        tensors = list(chain(module.parameters(), module.buffers()))
        device = tensors[0].device if tensors else torch.device("cpu")
        encoded = floats_as(torch.as_tensor(rows, device=device), dtype_of(module))
        with torch.no_grad(), _as_before(module, device):
            module.eval()
            try:
                return module(self.show(encoded))
            except RuntimeError as error:
                if self.in_order or "view size is not compatible" not in str(error):
                    raise
                self.in_order = True
                return module(self.show(encoded))

    def seen(self, x: Tensor, leaf: Any) -> Tensor:
        """Return a leaf of the observation in the form that the module expects, with floats in its
        weights' dtype.
        """
        dtype = x.dtype if x.is_floating_point() else dtype_of(self.module)
        is_fresh, x = x.dtype is not dtype, x.to(dtype)
        if leaf.axes is not None:
            x = x.permute(0, *(axis + 1 for axis in leaf.axes))
        if leaf.shape is not None:
            x = x.reshape(-1, *leaf.shape)
        if leaf.span is not None:
            if not (isinstance(leaf.low, float) and leaf.low == 0.0):
                is_fresh, x = True, x - torch.as_tensor(leaf.low, dtype=dtype, device=x.device)
            span: Any = leaf.span
            if not isinstance(span, float):
                span = torch.as_tensor(span, dtype=dtype, device=x.device)
            x = x.div_(span) if is_fresh else x / span
        return x.contiguous() if self.in_order else x


@contextmanager
def _as_before(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Return a context that restores the parts of a module that a pass can change, and the random
    state.

    Lazy layers draw their weights in the first pass, as other layers do in the constructor; these
    weights are kept.
    """
    modes = [(part, part.training) for part in module.modules()]
    is_lazy = any(map(nn.parameter.is_lazy, chain(module.parameters(), module.buffers())))
    buffers = [
        (part, name, buffer, None if nn.parameter.is_lazy(buffer) else buffer.clone())
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]
    with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=not is_lazy):
        yield
    for part, name, buffer, before in buffers:
        if before is not None:
            buffer.copy_(before)
            if getattr(part, name) is not buffer:
                setattr(part, name, buffer)
    for part, mode in modes:
        part.training = mode


class _CompiledForm:
    """The result of `torch.compile` that runs a module.

    A copy of the module is compiled again, with the same options, when it first runs: the compiled
    form refers to the module, so that it cannot be copied before the module's copy is complete.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._class, self._options = type(compiled), compiled.dynamo_ctx

    def of(self, module: nn.Module) -> Any:
        """Return the compiled form of the module that holds this object."""
        if self._compiled is None:
            self._compiled = self._class(module, self._options)
        return self._compiled

    def __deepcopy__(self, memo: dict[int, Any]) -> _CompiledForm:
        twin = copy.copy(self)
        twin._compiled = None
        return twin


class PlainModel(Plain, TorchModules, TorchModelV2):
    """Plain module followed by dense layers, logits and a value; see `Plain`."""

    stack_class = DenseStack
    outputs_class = OutputLayers
