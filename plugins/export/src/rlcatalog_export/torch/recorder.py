"""Recording: each PyTorch operation on the input tensors becomes a node of an ONNX graph.

There is no symbolic tracing: the model runs on real numbers and is unchanged afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog.errors import NotServedError
from rlcatalog_export.onnx_graph import Graph, GraphOutput, type_of
from rlcatalog_export.onnx_operations import FORMS, dtype_of
from rlcatalog_torch.private_api import OperationMode, base_of

#: Operations that create a tensor like another one, without reading its values.
_CREATES_ALIKE = {
    "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones",
    "new_full", "new_empty_strided",
}  # fmt: skip
#: Suffix of the name of a weight that is read transposed.
TURNED = ".t"
#: Operations that return numbers to Python.
_RETURNS_NUMBERS = {"_local_scalar_dense", "item", "is_nonzero", "equal"}


class Recording(OperationMode):
    """Recorder for operations on the given tensors; all other operands are constants.

    Args:
        inputs: Dict of the tensors that become the graph's inputs.
        weights: Dict of tensors that become inputs as soon as an operation reads them.

    Attributes:
        graph: The graph.
        used: The weights that were read, keyed by input name: `name.t` for a matrix that was read
            transposed.
        convolves: Whether the recording contains a convolution.
    """

    def __init__(self, inputs: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.graph = Graph()
        self.used: dict[str, Tensor] = {}
        self.convolves = False
        #: The name in the graph of each known tensor, by the tensor's `id`.
        self._names: dict[int, str] = {}
        #: References that prevent new tensors from reusing the identity of old ones.
        self._kept: list[Any] = []
        self._weights = {id(tensor): (name, tensor) for name, tensor in weights.items()}
        #: Known tensors by the address of their storage.
        self._storages: dict[int, list[Tensor]] = {}
        #: Tensors that were overwritten through another tensor.
        self._stale: set[int] = set()
        #: Tensors that were written in place, fully or in part.
        self._written: set[int] = set()
        for name, tensor in inputs.items():
            self._note(tensor, self.graph.input(name, dtype_of(tensor), tuple(tensor.shape)))

    def knows(self, tensor: Any) -> bool:
        """Return whether a tensor is computed by the graph or is a weight."""
        if id(tensor) in self._names or id(tensor) in self._weights:
            return True
        if not self._written or not isinstance(tensor, Tensor):
            return False
        return id(base_of(tensor)) in self._written

    def name(self, value: Any, dtype: str | None = None) -> str:
        """Return the name of a tensor or number in the graph, converted to a dtype if given."""
        if not isinstance(value, Tensor):
            return self.graph.constant(value, dtype)
        known = self._names.get(id(value))
        is_part_of_written = known is None and id(base_of(value)) in self._written
        if id(value) in self._stale or is_part_of_written:
            known = self._part(value)
        if known is None and id(value) in self._weights:
            name, tensor = self._weights[id(value)]
            known = self.graph.input(name, dtype_of(tensor), tuple(tensor.shape))
            self.used[name] = tensor
            self._note(value, known)
        own = dtype_of(value)
        if known is None:
            return self.graph.constant(value.numpy(), dtype or own)
        if dtype is None:
            return known
        return self.cast(known, own, dtype)

    def turned(self, tensor: Tensor) -> str | None:
        """Return the transpose of a weight as a separate input; None if it is not a weight.

        Otherwise, the graph would transpose the weight in each step.
        """
        if id(tensor) not in self._weights:
            return None
        name = self._weights[id(tensor)][0] + TURNED
        if name not in self.used:
            self.graph.input(name, dtype_of(tensor), tuple(tensor.t().shape))
            self.used[name] = tensor
        return name

    def cast(self, name: str, own: str, dtype: str) -> str:
        """Return a value in a different dtype."""
        if own == dtype:
            return name
        return self.graph.add("Cast", name, to=type_of(dtype))

    def reshaped(self, name: str, own: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """Return a value with a different shape."""
        if own == shape:
            return name
        return self.graph.add("Reshape", name, self.graph.constant(shape, "int64"))

    def common_dtype(self, *values: Any) -> str:
        """Return the dtype in which PyTorch compares values."""
        return str(torch.result_type(*values)).removeprefix("torch.")

    def refused(self, what: str) -> NotServedError:
        """Return the error for an unsupported operation."""
        return NotServedError(f"freeze: {what} cannot be recorded as a graph.")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and record it if it reads a tensor of the graph."""
        kwargs = kwargs or {}
        name = func.name().rpartition("::")[2].partition(".")[0]  # "add" of "aten::add.Tensor"
        reads_graph = any(self.knows(part) for part in _leaves((args, kwargs)))
        if name in _CREATES_ALIKE or not reads_graph:
            return func(*args, **kwargs)
        if name in _RETURNS_NUMBERS:
            raise self.refused(
                "reading a tensor's numbers into Python, as a data-dependent if, len or item does,"
            )
        is_in_place = name.endswith("_") and not name.startswith("_")
        form = FORMS.get(name.removesuffix("_") if is_in_place else name)
        if form is None:
            raise self.refused(f"the operation {name}")
        whole = None
        if is_in_place:
            written_tensor = args[0]
            whole = self._overwrite(written_tensor, name)
        result = func(*args, **kwargs)
        options = {key: kwargs[key] for key in kwargs.keys() - _TENSOR_OPTIONS}
        try:
            node_names = form(self, result, *args, **options)
        except (KeyError, TypeError, ValueError) as error:
            raise self.refused(f"the operation {name} ({type(error).__name__}: {error})") from error
        if not isinstance(result, Tensor):
            # Some forms leave out results that nothing reads while acting.
            for part, node_name in zip(result, node_names, strict=False):
                self._note(part, node_name)
            return result
        self._note(result, node_names)
        if is_in_place:
            self._written.add(id(result))
        if whole is not None:
            self._put(result, whole, node_names)
        return result

    def _overwrite(self, tensor: Tensor, name: str) -> Tensor | None:
        """Forget all tensors that share memory with a tensor that is being written in place.

        Returns:
            The whole tensor that the written tensor is a part of; None if it is a whole tensor
            itself, or the whole is no longer read.

        Raises:
            NotServedError: The tensor is a weight, or a part of memory that is not a contiguous
                tensor.
        """
        whole = base_of(tensor)
        storage = tensor.untyped_storage()
        writes_weight = id(tensor) in self._weights or id(whole) in self._weights
        if writes_weight:
            raise self.refused(f"{name}() in place on a parameter or a buffer")
        fills_storage = tensor.numel() * tensor.element_size() == storage.nbytes()
        if fills_storage:
            whole = None
        elif not _ordered(whole, tensor):
            whole = None
            if not self.knows(tensor):
                raise self.refused(f"{name}() in place on a part of another tensor")
        if whole is not None and not self.knows(whole):
            self._note(whole, self.graph.constant(whole.numpy(), dtype_of(whole)))
        for other in self._storages.get(storage.data_ptr(), ()):
            if other is tensor or other is whole:
                continue
            if np.shares_memory(array_of(other), array_of(tensor)):
                self._stale.add(id(other))
        return whole

    def _put(self, tensor: Tensor, whole: Tensor, name: str) -> None:
        """Record a write to a part of a tensor: the part's values replace those in the whole
        tensor.
        """
        flat = (whole.numel(),)
        before = self.reshaped(self.name(whole), tuple(whole.shape), flat)
        part = self.reshaped(name, tuple(tensor.shape), (tensor.numel(),))
        written = self.graph.add(
            "ScatterElements", before, self._places(tensor, whole), part, axis=0
        )
        self._names[id(whole)] = self.reshaped(written, flat, tuple(whole.shape))
        self._written.add(id(whole))

    def _part(self, tensor: Tensor) -> str:
        """Return the content of a part of a tensor after in-place writes."""
        whole: Any = base_of(tensor)
        if not self.knows(whole) or id(whole) in self._stale or not _ordered(whole, tensor):
            raise self.refused(
                "reading a tensor after an in-place operation on a part of it, or on the tensor"
                " that it is a part of,"
            )
        flat = self.reshaped(self.name(whole), tuple(whole.shape), (whole.numel(),))
        numbers = self.graph.add("Gather", flat, self._places(tensor, whole), axis=0)
        return self.reshaped(numbers, (tensor.numel(),), tuple(tensor.shape))

    def _places(self, tensor: Tensor, whole: Tensor) -> str:
        """Return the positions of a part's values in the whole tensor."""
        places = torch.arange(whole.numel()).as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )
        return self.graph.constant(places.reshape(-1).numpy(), "int64")

    def _note(self, tensor: Tensor, name: str) -> None:
        if id(tensor) not in self._names:
            self._kept.append(tensor)
            self._storages.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        self._names[id(tensor)] = name


#: Arguments for a new tensor's device and dtype, which the example tensor defines anyway.
_TENSOR_OPTIONS = {
    "dtype",
    "layout",
    "device",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "implicit",
    "sparse_grad",
}


def _leaves(arguments: Any) -> Iterator[Any]:
    """Yield everything in an operation's arguments, which may be nested."""
    if isinstance(arguments, Mapping):
        arguments = tuple(arguments.values())
    if not isinstance(arguments, list | tuple):
        yield arguments
        return
    for part in arguments:
        yield from _leaves(part)


def _ordered(whole: Tensor | None, part: Tensor) -> bool:
    """Return whether a tensor is part of a contiguous tensor that fills its storage."""
    if (
        whole is None
        or whole.dtype is not part.dtype
        or not whole.is_contiguous()
        or whole.storage_offset()
    ):
        return False
    return whole.numel() * whole.element_size() == whole.untyped_storage().nbytes()


def record(
    function: Callable[..., dict[str, Tensor]],
    inputs: dict[str, Tensor],
    weights: dict[str, Tensor],
) -> tuple[Recording, list[GraphOutput]]:
    """Record the operations of a function on its inputs.

    Args:
        function: Function to call with the dict of inputs; it returns a dict of outputs.
        inputs: The function's inputs; it must not change them.
        weights: Other tensors that the function may read and that must not become constants.

    Returns:
        The recording, and its outputs for `Graph.model`.
    """
    with Recording(inputs, weights) as recording:
        results = function(**inputs)
    outputs = []
    for name, tensor in results.items():
        value = recording.name(tensor)
        outputs.append(GraphOutput(name, value, dtype_of(tensor), tuple(tensor.shape)))
    return recording, outputs


def array_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array that shares the tensor's memory."""
    return tensor.detach().numpy()
