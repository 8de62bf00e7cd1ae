from .actor import Actor as Actor, ActorState as ActorState
from .checksum import (
    add_checksum as add_checksum,
    check_folder as check_folder,
    read_file as read_file,
    read_with_checksum as read_with_checksum,
    seal_folder as seal_folder,
)
from .exporter import export as export
from .file_check import observations as observations
from .formats import ExportResult as ExportResult, Runner as Runner
from .interface import Interface as Interface, Port as Port
from .noise import Noise as Noise
from .policy_function import PolicyFunction as PolicyFunction
