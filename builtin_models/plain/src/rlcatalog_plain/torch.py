"""Plain PyTorch modules as models."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rlcatalog.frameworks import Array, TensorTree
from rlcatalog_plain.common import Leaf, Plain
from rlcatalog_plain.module_source import Module
from rlcatalog_torch import OPS, DenseStack, OutputLayers, TorchModelV2, dtype_of, floats_as
from rlcatalog_torch.private_api import original_of

#: Key of a module's `__dict__` for its `_CompiledForm`.
_COMPILED_FORM = "_rlcatalog_compiled"


class TorchSource:
    """What PyTorch's models around a plain module know of modules; see `ModelOfModule`."""

    @staticmethod
    def is_module(value: Module) -> bool:
        """Return whether a value is an `nn.Module` or a subclass of `nn.Module`."""
        cls = value if isinstance(value, type) else type(value)
        return issubclass(cls, nn.Module)

    @staticmethod
    def unwrapped(module: Module) -> Any:
        """Return the module inside a result of `torch.compile`; the compiled version
        still runs it.
        """
        inner = original_of(module)
        if inner is None:
            return module
        # Not as an attribute, because a module's weights would be registered.
        vars(inner)[_COMPILED_FORM] = _CompiledForm(module)
        return inner

    def copy_module(self, module: Module) -> Any:
        """Return a deep copy of a module."""
        return copy.deepcopy(module)


class PlainModel(TorchSource, Plain, TorchModelV2):
    """Plain module followed by dense layers, logits and a value; see `Plain`.

    Attributes:
        copies_images: Whether to copy images, so that channels also come first in memory. The copy
            takes time, but modules that call `view` on the result of a convolution need it.
    """

    stack_class = DenseStack
    outputs_class = OutputLayers
    channels_first = True
    copies_images = False

    def run_module(self, module: Module, x: TensorTree, inputs: Mapping[str, Any]) -> Any:
        """Return the module's outputs."""
        compiled = module.__dict__.get(_COMPILED_FORM)
        if compiled is None:
            return module(x)
        return compiled.of(module)(x)

    def try_module(self, module: nn.Module, rows: Array) -> Any:
        """Run a module in eval mode, and then restore its mode, its buffers and the
        random state.
        """
        device = device_of(module)
        encoded = floats_as(torch.as_tensor(rows, device=device), dtype_of(module))
        with torch.no_grad(), restore_afterwards(module, device):
            module.eval()
            try:
                return module(self.show(encoded))
            except RuntimeError as error:
                is_layout_error = "view size is not compatible" in str(error)
                if self.copies_images or not is_layout_error:
                    raise
                # The module calls `view`, which needs channels first also in memory: copy images.
                self.copies_images = True
                return module(self.show(encoded))

    def convert_leaf(self, x: Tensor, leaf: Leaf) -> Tensor:
        """Return a leaf of the observation in the form that the module expects, with floats in its
        weights' dtype.
        """
        dtype = x.dtype if x.is_floating_point() else dtype_of(self.module)
        is_new_tensor = x.dtype is not dtype  # then `to` copies it
        x = x.to(dtype)
        if leaf.axes is not None:
            # The axes do not count the batch's.
            x = x.permute(0, *(axis + 1 for axis in leaf.axes))
        if leaf.shape is not None:
            x = x.reshape(-1, *leaf.shape)
        if leaf.span is not None:
            x = _scale(x, leaf.low, leaf.span, in_place=is_new_tensor)
        if self.copies_images:
            x = x.contiguous()
        return x


def call_module(module: nn.Module, *arguments: Any) -> Any:
    """Call a module, or the compiled form that it was given in."""
    compiled = module.__dict__.get(_COMPILED_FORM)
    if compiled is None:
        return module(*arguments)
    return compiled.of(module)(*arguments)


def _scale(x: Tensor, low: float | Array, span: float | Array, in_place: bool) -> Tensor:
    """Return `(x - low) / span`; `in_place` allows to write to `x`."""
    if not isinstance(low, float) or low != 0.0:
        x = x - OPS.constant(low, x).to(x.dtype)
        in_place = True  # `x` is a new tensor now
    divisor: float | Tensor
    if isinstance(span, float):
        divisor = span
    else:
        divisor = OPS.constant(span, x).to(x.dtype)
    if in_place:
        return x.div_(divisor)
    return torch.div(x, divisor)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first tensor; the CPU if it has none."""
    for tensor in chain(module.parameters(), module.buffers()):
        return tensor.device
    return torch.device("cpu")


class _SavedBuffer(NamedTuple):
    """A buffer of a module, with a copy of its values.

    Attributes:
        owner: The module that has the buffer.
        name: Its name there.
        buffer: The buffer.
        values: The copy.
    """

    owner: nn.Module
    name: str
    buffer: Tensor
    values: Tensor

    def restore(self) -> None:
        """Give the module back its buffer, with its values."""
        self.buffer.copy_(self.values)
        # The buffer is missing there if the module has assigned another tensor.
        if getattr(self.owner, self.name) is not self.buffer:
            setattr(self.owner, self.name, self.buffer)


@contextmanager
def restore_afterwards(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Return a context that restores the parts of a module that a pass can change, and the random
    state.

    Lazy layers draw their weights in the first pass, as other layers do in the constructor; these
    weights are kept.
    """
    modes = [(part, part.training) for part in module.modules()]
    has_lazy_layers = any(map(is_lazy, chain(module.parameters(), module.buffers())))
    saved_buffers = []
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if not is_lazy(buffer):
                saved_buffers.append(_SavedBuffer(part, name, buffer, buffer.clone()))
    gpus = [device] if device.type == "cuda" else []
    # The random numbers that a lazy layer drew for its weights count as used.
    with torch.random.fork_rng(gpus, enabled=not has_lazy_layers):
        yield
    for saved in saved_buffers:
        saved.restore()
    for part, mode in modes:
        part.training = mode


class _CompiledForm:
    """The result of `torch.compile` that runs a module.

    A copy of the module is compiled again, with the same options, when it first runs: the compiled
    form refers to the module, so that it cannot be copied before the module's copy is complete.

    Args:
        compiled: The result of `torch.compile`.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._class = type(compiled)
        self._options = compiled.dynamo_ctx

    def of(self, module: nn.Module) -> Any:
        """Return the compiled form of the module that holds this object."""
        if self._compiled is None:
            self._compiled = self._class(module, self._options)
        return self._compiled

    def __deepcopy__(self, memo: dict[int, Any]) -> _CompiledForm:
        twin = copy.copy(self)
        twin._compiled = None
        return twin
