"""ONNX export of policies: one function writes the files for all frameworks, and onnxruntime runs
them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from rlcatalog.errors import SavedPolicyError, raised_as
from rlcatalog.frameworks import Array
from rlcatalog_export import Interface, add_checksum, read_with_checksum
from rlcatalog_export.library_warnings import only_own_warnings

#: Metadata key of the interface.
INTERFACE = "rlcatalog"
#: Bytes before the checksum, which is the value of a metadata entry at the end of a file: the field
#: number in a ModelProto, the entry's key, and lengths.
_MARK = b"\x72\x54\x0a\x10rlcatalog.sha256\x12\x40"


def write_model(model: Any, interface: Interface, path: Path) -> None:
    """Write an `onnx.ModelProto` of a policy, with its interface and its checksum."""
    import onnx  # not needed to act from a file

    for part in (model, model.graph, *model.graph.node, *model.graph.value_info):
        # PyTorch writes stack traces there, with the paths of this machine.
        part.ClearField("metadata_props")
    model.producer_name = "rlcatalog"
    model.producer_version = interface.rlcatalog
    onnx.helper.set_model_props(model, {INTERFACE: interface.to_json()})
    write_sealed(model.SerializeToString(), path)


def write_sealed(content: bytes, path: Path) -> None:
    """Write a model with its checksum."""
    path.write_bytes(add_checksum(content, _MARK))


@contextlib.contextmanager
def quiet_converters(*names: str) -> Iterator[None]:
    """Silence converters: their warnings, prints, and the given loggers."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with only_own_warnings(), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def session_of(content: bytes) -> Any:
    """Return a session that runs a model on a single CPU thread, which is fastest for small
    batches.

    Raises:
        Exception: onnxruntime's errors, which have no common base class.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # log fatal errors only
    # A model may refer to other files with its weights; do not read them.
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", os.devnull
    )
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


class OnnxRunner:
    """ONNX file in memory, ready to run on the CPU.

    Args:
        path: The file.

    Attributes:
        interface: Description of the inputs and outputs, as JSON.
        checked: Whether the file has a checksum.

    Raises:
        SavedPolicyError: The file cannot be read, or does not contain a policy.
    """

    def __init__(self, path: Path) -> None:
        content, self.checked = read_with_checksum(path, _MARK)
        with raised_as(lambda why: SavedPolicyError(f"{path} cannot be read: {why}")):
            self._session = session_of(content)
        interface = self._session.get_modelmeta().custom_metadata_map.get(INTERFACE)
        if interface is None:
            raise SavedPolicyError(
                f"{path} is an ONNX file, but not a policy exported by rlcatalog."
            )
        self.interface: str = interface

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """Return a dict of outputs for a dict of inputs."""
        arrays: Sequence[Array] = self._session.run(outputs, feeds)
        return arrays
