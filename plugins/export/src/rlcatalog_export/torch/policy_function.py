"""A policy as a module from observations and noise to actions, for `torch.export`."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import rlcatalog_torch
from rlcatalog.errors import CatalogError
from rlcatalog_export.export_error import explain_stop
from rlcatalog_export.library_warnings import only_own_warnings
from rlcatalog_export.policy_function import PolicyFunction
from rlcatalog_export.torch.noise import TorchNoise
from rlcatalog_policy import Policy
from rlcatalog_torch import OPS


class TorchPolicyFunction(PolicyFunction, nn.Module):
    """Copy of a policy as a function of tensors, described by `interface`.

    Args:
        policy: The policy, which is copied.

    Attributes:
        suspects: Lines that turn the batch size into a constant, stored in an object that PyTorch
            does not restore.

    Raises:
        NotServedError: The policy uses something that cannot be exported.
    """

    noise_class = TorchNoise

    def __init__(self, policy: Policy) -> None:
        nn.Module.__init__(self)
        # Building a model must not change the policy's next samples.
        with torch.random.fork_rng([]):
            own = copy.deepcopy(policy).to("cpu")
        model: Any = own.model
        self.model: Any = model.eval()
        # Tracing collects these lines for the error message. A plain list would not keep them,
        # because PyTorch restores a module's lists after exporting it.
        self.suspects = SimpleNamespace(lines=[])
        with torch.inference_mode(False), torch.no_grad():
            PolicyFunction.__init__(self, own, OPS)

    @staticmethod
    def drawing(noise: TorchNoise) -> TorchNoise:
        """Return a context in which PyTorch samples from the noise: the noise object itself."""
        return noise

    def drawing_given(self, numbers: np.ndarray[Any, Any]) -> TorchNoise:
        """Return a context in which the policy samples from given numbers `[B, k]`,
        as a file does.
        """
        return TorchNoise(len(numbers), torch.from_numpy(numbers))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in the order of `interface.outputs` for the inputs in the order of
        `interface.inputs`.
        """
        names = [port.name for port in self.interface.inputs]
        given = dict(zip(names, tensors, strict=True))
        noise = TorchNoise(
            rows=None,
            uniforms=given.get("noise"),
            widths=self.widths,
            suspects=self.suspects.lines,
        )
        outputs = self.run(given, noise)
        results = []
        for port in self.interface.outputs:
            output = outputs[port.name]
            # An exported program must not return its own inputs.
            is_input = any(output is tensor for tensor in tensors)
            results.append(output.clone() if is_input else output)
        return tuple(results)


def export_program(function: TorchPolicyFunction) -> Any:
    """Return the `torch.export.ExportedProgram` of a policy for batches of any size.

    Raises:
        NotServedError: PyTorch cannot export the policy; if known, the message names the line of
            the model or distribution that caused the error.
    """
    ports = function.interface.inputs
    rng = np.random.default_rng(0)
    # The number of rows is arbitrary, because the batch axis is declared as variable.
    examples = tuple(torch.from_numpy(function.example(port, 4, rng)) for port in ports)
    batch = torch.export.Dim("batch", min=1)
    # All inputs but this one have a batch axis.
    shapes = tuple({} if port.role == "deterministic" else {0: batch} for port in ports)
    try:
        # PyTorch warns about tensors that models store from their last pass; they belong to the
        # copy.
        with torch.no_grad(), only_own_warnings():
            return torch.export.export(function, examples, dynamic_shapes=(shapes,), strict=False)
    except CatalogError:
        raise
    except Exception as error:
        raise explain_stop(
            error, "cannot be exported", torch, rlcatalog_torch, suspects=function.suspects.lines
        ) from error
