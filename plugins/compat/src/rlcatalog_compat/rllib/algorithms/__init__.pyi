from rlcatalog_compat.algorithms import Algorithm as Algorithm
from . import a2c as a2c
from . import algorithm as algorithm
from . import dqn as dqn
from . import ppo as ppo
