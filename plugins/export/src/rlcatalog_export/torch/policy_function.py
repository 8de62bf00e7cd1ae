"""A policy as one module of tensors to tensors: from observations and noise to actions, for `torch.export`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcatalog.errors import CatalogError
from rlcatalog_export import Exported
from rlcatalog_export.policy_function import PolicyFunction
from rlcatalog_export.torch.export_error import Suspects, explain_stop
from rlcatalog_export.torch.noise import Drawing
from rlcatalog_torch import OPS

if TYPE_CHECKING:
    from rlcatalog_policy import Policy


class LoweredPolicy(PolicyFunction, nn.Module):
    """A copy of a policy as one function of tensors; `interface` says which.

    Args:
        policy: The policy; it is copied.
        replaced: Functions of PyTorch's that a format has no form of, and what to call in their place.

    Attributes:
        suspects: Lines that make a number of the size of the batch.

    Raises:
        NotServedError: The policy does something that cannot be exported.
    """

    def __init__(self, policy: Policy, replaced: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        nn.Module.__init__(self)
        with torch.random.fork_rng([]):  # a model is built; what the policy draws next must not depend on it
            own = copy.deepcopy(policy).to("cpu")
        model: Any = own.model
        self.model: Any = model.eval()
        self._replaced = replaced or {}
        self.suspects = Suspects()
        with torch.inference_mode(False), torch.no_grad():
            PolicyFunction.__init__(self, own, OPS)

    def new_noise(self, rows: int) -> Drawing:
        """Return noise that draws its numbers itself and counts them."""
        return Drawing(rows, replaced=self._replaced)

    def drawing(self, noise: Drawing) -> Drawing:
        """Return a context in which PyTorch draws from noise: the noise itself."""
        return noise

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in the order of `interface.outputs` for the inputs in the order of `interface.inputs`."""
        given = {port.name: tensor for port, tensor in zip(self.interface.inputs, tensors, strict=True)}
        noise = Drawing(tensors[0].shape[0], given.get("noise"), self.widths, self._replaced)
        noise.suspects = self.suspects
        outputs = self.run(given, noise)
        ordered = (outputs[port.name] for port in self.interface.outputs)
        # Whatever is an input as it is must be a tensor of its own.
        return tuple(x.clone() if any(x is tensor for tensor in tensors) else x for x in ordered)

    def examples(self, rows: int) -> tuple[Tensor, ...]:
        """Return inputs of the right shapes and dtypes for a batch."""
        rng = np.random.default_rng(0)
        return tuple(torch.from_numpy(self.example(port, rows, rng)) for port in self.interface.inputs)

    def written(self) -> Exported:
        """Return what a written file is compared with."""

        def drawing(noise: np.ndarray[Any, Any]) -> Drawing:
            return Drawing(len(noise), torch.from_numpy(noise), replaced=self._replaced)

        return Exported(self.interface, self.policy, drawing)


def export_program(lowered: LoweredPolicy) -> Any:
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
        raise explain_stop(error, lowered.suspects, "cannot be exported") from error
