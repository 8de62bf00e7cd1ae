from .actor import Actor as Actor, ActorState as ActorState
from .checksum import (
    check_folder as check_folder,
    read_file as read_file,
    read_sealed as read_sealed,
    seal_folder as seal_folder,
    sealed as sealed,
)
from .exporter import export as export
from .file_check import observations as observations
from .formats import Exported as Exported, Runner as Runner
from .interface import Interface as Interface, Port as Port
from .noise import Noise as Noise
from .policy_function import PolicyFunction as PolicyFunction
