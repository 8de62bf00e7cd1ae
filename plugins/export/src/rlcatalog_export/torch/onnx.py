"""Writing ONNX files of PyTorch's policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlcatalog import Policy
from rlcatalog_export import Exported
from rlcatalog_export.formulas import log_gamma
from rlcatalog_export.onnx import quiet_converters, write_model
from rlcatalog_export.torch.export_error import explain_stop
from rlcatalog_export.torch.policy_function import LoweredPolicy, export_program


def write_onnx(policy: Policy, path: Path) -> Exported:
    """Write a policy as an ONNX file.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: It does something that PyTorch cannot export, or ONNX has no operation for.
    """
    lowered = LoweredPolicy(policy, REPLACED)
    program, interface = export_program(lowered), lowered.interface
    with quiet_converters("torch.onnx"):
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[port.name for port in interface.inputs],
                output_names=[port.name for port in interface.outputs],
                opset_version=18,
                verbose=False,
            )
        except Exception as error:
            raise explain_stop(error, None, "has no ONNX form", lined=False) from error
    assert made is not None
    write_model(made.model_proto, interface, path)
    return lowered.written()


# --- what ONNX has no operation for ----------------------------------------------------------------------------------


def _lgamma(x: Tensor, *, out: Any = None) -> Tensor:
    """Return log Γ(x) for x > 0, computed in float64."""
    return log_gamma(x.double()).to(x.dtype)  # type: ignore[no-any-return]


def _searchsorted(sorted_sequence: Tensor, input: Tensor, **options: Any) -> Tensor:
    """Return the places of values among sorted numbers: how many are lower, or no higher with `right`."""
    if sorted_sequence.dim() != 1 or set(options) - {"right"}:
        return torch.searchsorted(sorted_sequence, input, **options)
    values = input.unsqueeze(-1)
    before = sorted_sequence <= values if options.get("right") else sorted_sequence < values
    return before.sum(dim=-1)


REPLACED: dict[Any, Callable[..., Any]] = {
    torch.lgamma: _lgamma,
    Tensor.lgamma: _lgamma,
    torch.special.gammaln: _lgamma,
    torch.searchsorted: _searchsorted,
}
