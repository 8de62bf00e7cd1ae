"""Writing ONNX files of PyTorch's policies."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor

from rlcatalog import Policy
from rlcatalog_export import Exported
from rlcatalog_export.formulas import log_gamma
from rlcatalog_export.onnx import INTERFACE, write_sealed
from rlcatalog_export.torch.lowering import LoweredPolicy, exported, exported_program
from rlcatalog_export.torch.stopping import stopped


def write_onnx(policy: Policy, path: Path) -> Exported:
    """Write a policy as an ONNX file.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: It does something that PyTorch cannot export, or ONNX has no operation for.
    """
    lowered = LoweredPolicy(policy, REPLACED)
    write_sealed(graph_of(lowered).SerializeToString(), path)
    return exported(lowered)


def graph_of(lowered: LoweredPolicy) -> onnx.ModelProto:
    """Return a policy's graph, its interface in its metadata."""
    program, interface = exported_program(lowered), lowered.interface
    with _quiet():
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
            raise stopped(error, None, "has no ONNX form", lined=False) from error
    assert made is not None
    model: onnx.ModelProto = made.model_proto
    model.producer_name, model.producer_version = "rlcatalog", interface.rlcatalog
    onnx.helper.set_model_props(model, {INTERFACE: interface.to_json()})
    return model


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what the exporter says of its own working."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


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
