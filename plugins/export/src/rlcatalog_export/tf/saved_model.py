"""Writer and runner for the format `"savedmodel"`, a policy as a TensorFlow SavedModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rlcatalog.errors import NotServedError, SavedPolicyError, raised_as
from rlcatalog.frameworks import Array
from rlcatalog_export import ExportResult, Interface, check_folder, read_file, seal_folder
from rlcatalog_export.onnx import quiet_converters
from rlcatalog_export.tf.policy_function import TFPolicyFunction
from rlcatalog_policy import Policy
from rlcatalog_tf import tf

#: Path of the interface in the folder; TensorFlow reserves this subfolder for other files.
INTERFACE = Path("assets.extra/rlcatalog.json")
#: File with the checksums of all other files.
_CHECKSUMS = "assets.extra/rlcatalog.sha256"
_SIGNATURE = "serving_default"


def write_saved_model(policy: Policy, path: Path) -> ExportResult:
    """Write a policy as a SavedModel, which is a folder.

    Args:
        policy: The policy.
        path: The folder.

    Raises:
        NotServedError: The policy does something that TensorFlow cannot trace or save, or uses
            TensorFlow's random numbers.
    """
    function = TFPolicyFunction(policy)
    module = tf.Module()  # save only the variables and the program, not the model's attributes
    module.held = list(function.program.graph.variables)
    # TensorFlow raises its own errors for objects that it cannot track, and would print the
    # temporary path of the files.
    no_form = raised_as(
        lambda why: NotServedError(f"export: cannot write it as a SavedModel: {why}"), OSError
    )
    with no_form, quiet_converters("tensorflow"):
        tf.saved_model.save(module, str(path), signatures={_SIGNATURE: function.program})
    (path / INTERFACE).parent.mkdir(exist_ok=True)
    (path / INTERFACE).write_text(function.interface.to_json(), encoding="utf-8")
    seal_folder(path, _CHECKSUMS)
    return function.written()


class SavedModelRunner:
    """SavedModel in memory, ready to run on the CPU.

    Args:
        path: The folder.

    Attributes:
        interface: Description of the inputs and outputs, as JSON.
        checked: Whether the folder has checksums.

    Raises:
        SavedPolicyError: The path cannot be read, or does not contain a policy.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.interface = read_file(path / INTERFACE, Interface.LONGEST).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise SavedPolicyError(
                f"{path} is not a policy exported by rlcatalog: {error}"
            ) from error
        self.checked = check_folder(path, _CHECKSUMS)
        with raised_as(lambda why: SavedPolicyError(f"{path} cannot be read: {why}")):
            self._module = tf.saved_model.load(str(path))  # the signature does not keep it alive
            self._run = self._module.signatures[_SIGNATURE]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """Return a dict of outputs for a dict of inputs."""
        with tf.device("/cpu:0"):
            arrays = self._run(**{name: tf.constant(array) for name, array in feeds.items()})
        return [arrays[name].numpy() for name in outputs]
