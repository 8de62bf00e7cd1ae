"""Base classes for models in PyTorch: `TorchModelV2`, `RecurrentNetwork`, and models that contain
other models.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import nn
from torch.compiler import is_compiling

from rlcatalog.models import (
    LayersAfterMemory,
    ModelV2,
    ModelWrapper,
    RecurrentBase,
    SeparateCritic,
    SeparateValue,
    check_time_major,
)
from rlcatalog_torch.dtypes import dtype_of
from rlcatalog_torch.nn import DenseStack, OutputLayers, dense, features_of
from rlcatalog_torch.private_api import COMPILED, MODULES
from rlcatalog_torch.sequences import sequences_of, steps_of

_MISSING: Any = object()


class _ModelMeta(ABCMeta):
    """Metaclass that allows `nn.Module` alongside `TorchModelV2` in a class header, in either
    order.

    TorchModelV2 is already an nn.Module. If nn.Module came first, the method resolution order would
    be inconsistent, so the metaclass removes the redundant base.
    """

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> Any:
        if any(isinstance(base, _ModelMeta) for base in bases):
            bases = tuple(base for base in bases if base is not nn.Module)
        return super().__new__(mcs, name, bases, namespace, **kwargs)


class TorchModelV2(ModelV2, nn.Module, metaclass=_ModelMeta):
    """Base class for PyTorch models.

    Implement `__init__`, `forward` and `value_function`; see `ModelV2` for the contract. You can
    call `nn.Module.__init__` before or after this class's constructor, or not at all. Without
    arguments, the constructor only initialises the nn.Module part, because `super().__init__()`
    calls it in classes whose header names nn.Module first.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        model_config: The flat model config.
        name: A name for the model.
    """

    framework_of_class: ClassVar[str] = "torch"

    def __init__(
        self,
        obs_space: Any = _MISSING,
        action_space: Any = None,
        num_outputs: int | None = None,
        model_config: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        if MODULES not in self.__dict__:
            nn.Module.__init__(self)
        if obs_space is not _MISSING:
            ModelV2.__init__(
                self, obs_space, action_space, num_outputs, model_config, name, "torch"
            )

    def variables(self, as_dict: bool = False) -> list[nn.Parameter] | dict[str, nn.Parameter]:
        """Return all parameters, as a list or as a dict."""
        if as_dict:
            return dict(self.named_parameters())
        return list(self.parameters())

    def trainable_variables(
        self, as_dict: bool = False
    ) -> list[nn.Parameter] | dict[str, nn.Parameter]:
        """Return the parameters that require gradients, as a list or as a dict."""
        weights = {name: p for name, p in self.named_parameters() if p.requires_grad}
        if as_dict:
            return weights
        return list(weights.values())

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        bookkeeping = self.__dict__.get(
            "_rlcatalog_bookkeeping"
        )  # none before the base is initialised
        if mode and bookkeeping is not None:
            bookkeeping.keep_still(self)
        return self

    def __getattr__(self, name: str) -> Any:
        # Layers first, because forward() mostly accesses these, and every microsecond of acting
        # counts.
        try:
            return self.__dict__[MODULES][name]
        except KeyError:
            return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        # A tensor stays a plain attribute if its name already is one: forward() stores its features
        # this way at every step, and nn.Module.__setattr__ costs two microseconds. Compiled code
        # must not look: it would take the old features for an input.
        if type(value) is torch.Tensor and not is_compiling() and name in self.__dict__:
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Return what `copy.deepcopy` and pickle need."""
        state = dict(self.__dict__)
        # The compiled version calls this model, so a copy must not have it.
        state.pop(COMPILED, None)
        for name, value in state.items():
            # Outputs of the last pass belong to a graph that cannot be copied or pickled.
            if isinstance(value, torch.Tensor) and _is_output(value):
                state[name] = None
        return state


def _is_output(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is the result of operations: of recorded ones, or in acting."""
    return tensor.grad_fn is not None or tensor.is_inference()


class RecurrentNetwork(RecurrentBase, TorchModelV2):
    """Base class for recurrent models: implement `forward_rnn` and `get_initial_state`."""

    def forward(
        self, input_dict: dict[str, Any], state: list[torch.Tensor], seq_lens: torch.Tensor | None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Add the time dimension and call `forward_rnn`."""
        flat = input_dict["obs_flat"].to(dtype_of(self))
        rows = flat.shape[0]
        if seq_lens is None:
            seq_lens = torch.ones(rows, dtype=torch.int32, device=flat.device)
        sequences = sequences_of(seq_lens)
        steps = steps_of(rows, sequences)
        is_time_major = self.is_time_major()
        # `value_function` may return time-major rows, which the kernel reorders by these numbers.
        self._rlcatalog_bookkeeping.time_major_sizes = (steps, sequences) if is_time_major else None
        inputs = flat.reshape(sequences, steps, flat.shape[1])
        if is_time_major:
            inputs = inputs.transpose(0, 1)
        output, new_state = self.forward_rnn(inputs, state, seq_lens)
        if is_time_major:
            check_time_major(self, tuple(output.shape), steps, sequences)
            output = output.reshape(steps, sequences, output.shape[-1]).transpose(0, 1)
        return output.reshape(rows, output.shape[-1]), list(new_state)


class TorchHost(ModelWrapper, TorchModelV2):
    """PyTorch model that contains another model; see `rlcatalog.models.ModelWrapper`."""


class TorchSeparateValue(SeparateValue, TorchModelV2):
    """PyTorch model with separate chains for policy and value; see
    `rlcatalog.models.SeparateValue`.
    """

    run_chain = staticmethod(features_of)
    output_layers = OutputLayers


class TorchLayersAfterMemory(LayersAfterMemory, TorchModelV2):
    """PyTorch model of a memory and the layers after it; see
    `rlcatalog.models.LayersAfterMemory`.
    """

    run_chain = staticmethod(features_of)
    dense_stack = DenseStack
    output_layers = OutputLayers


class TorchSeparateCritic(SeparateCritic, TorchModelV2):
    """PyTorch model of a policy and its critic; see `rlcatalog.models.SeparateCritic`."""

    run_chain = staticmethod(features_of)
    dense_layer = staticmethod(dense)
