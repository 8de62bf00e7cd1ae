from rlcatalog_compat.algorithms import A2CTrainer as A2CTrainer
from rlcatalog_compat.algorithms import A3CTrainer as A3CTrainer
from rlcatalog_compat.algorithms import DEFAULT_CONFIG as DEFAULT_CONFIG
from . import a2c as a2c
