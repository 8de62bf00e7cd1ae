from .pins import Pins as Pins
from .resolution import Explanation as Explanation, Resolution as Resolution, model_stages as model_stages
from .slots import MODEL_SLOTS as MODEL_SLOTS
