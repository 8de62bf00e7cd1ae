from .actor import Actor as Actor, ActorState as ActorState
from .checking import observations as observations
from .contract import Exported as Exported, Runner as Runner
from .exporting import export as export
from .freezing import freeze as freeze
from .interface import Interface as Interface, Port as Port
from .whole import Whole as Whole
