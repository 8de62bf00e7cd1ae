from rlcatalog_compat.algorithms import DEFAULT_CONFIG as DEFAULT_CONFIG
from rlcatalog_compat.algorithms import PPOTrainer as PPOTrainer
from rlcatalog_compat.builder import PPOConfig as PPOConfig
from . import ppo as ppo
