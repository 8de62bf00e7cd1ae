from .explanation import Explanation as Explanation
from .resolution import (
    PartAddresses as PartAddresses,
    Resolution as Resolution,
    model_stages as model_stages,
)
from .slots import MODEL_SLOTS as MODEL_SLOTS
