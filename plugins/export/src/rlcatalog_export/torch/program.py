"""Writer and runner for the format `"torch"`, a policy as a `torch.export` program."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from rlcatalog.errors import SavedPolicyError, raised_as
from rlcatalog.frameworks import Array
from rlcatalog_export import ExportResult, Interface, add_checksum, read_with_checksum
from rlcatalog_export.checksum import CHECKSUM_LENGTH
from rlcatalog_export.torch.policy_function import TorchPolicyFunction, export_program
from rlcatalog_policy import Policy

#: Name of the interface among the file's extra files.
INTERFACE = "rlcatalog.json"
#: Text before the checksum, at the end of the archive's comment.
_MARK = b"rlcatalog sha256 "


def write_program(policy: Policy, path: Path) -> ExportResult:
    """Write a policy as a `torch.export` program.

    Args:
        policy: The policy.
        path: The file.

    Raises:
        NotServedError: The policy uses something that PyTorch cannot export.
    """
    function = TorchPolicyFunction(policy)
    program = export_program(function)
    archive = io.BytesIO()
    with warnings.catch_warnings():
        # A constant may be a part of a larger one. PyTorch then saves the larger one, as it should
        # on the CPU, where policies are exported.
        warnings.filterwarnings("ignore", "No complete tensor found in the group", UserWarning)
        torch.export.save(program, archive, extra_files={INTERFACE: function.interface.to_json()})
    # A zip archive without a comment ends in two bytes, its comment's length. The mark and the
    # checksum become the comment.
    comment_length = len(_MARK) + CHECKSUM_LENGTH
    content = archive.getvalue()[:-2] + comment_length.to_bytes(2, "little")
    path.write_bytes(add_checksum(content, _MARK))
    return function.written()


class ProgramRunner:
    """`torch.export` program, ready to run on the CPU.

    Args:
        path: The file.

    Attributes:
        interface: Description of the inputs and outputs, as JSON.
        checked: Whether the file has a checksum.

    Raises:
        SavedPolicyError: The path cannot be read, or does not contain a policy.
    """

    def __init__(self, path: Path) -> None:
        content, self.checked = read_with_checksum(path, _MARK)
        extra = {INTERFACE: ""}
        with (
            raised_as(lambda why: SavedPolicyError(f"{path} cannot be read: {why}")),
            warnings.catch_warnings(),
        ):
            # PyTorch 2.12 reads the weights from a buffer that it then warns about.
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            program = torch.export.load(io.BytesIO(content), extra_files=extra)
        if not extra[INTERFACE]:
            raise SavedPolicyError(
                f"{path} is a PyTorch program, but not a policy exported by rlcatalog."
            )
        self.interface = extra[INTERFACE]
        self._run = program.module()
        interface = Interface.from_json(self.interface, str(path))
        self._inputs = [port.name for port in interface.inputs]
        self._names = [port.name for port in interface.outputs]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """Return a dict of outputs for a dict of inputs."""
        with torch.inference_mode():
            tensors = self._run(
                *(torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in self._inputs)
            )
        by_name = dict(zip(self._names, tensors, strict=True))
        return [by_name[name].numpy() for name in outputs]
