from . import a2c as a2c
from . import dqn as dqn
from . import ppo as ppo
