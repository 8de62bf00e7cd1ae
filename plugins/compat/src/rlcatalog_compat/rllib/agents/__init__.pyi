from . import a3c as a3c
from . import dqn as dqn
from . import ppo as ppo
from . import registry as registry
