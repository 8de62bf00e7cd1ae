from . import agents as agents
from . import algorithms as algorithms
from . import env as env
from . import evaluation as evaluation
from . import models as models
from . import offline as offline
from . import policy as policy
from . import utils as utils
