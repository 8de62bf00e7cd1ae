from rlcatalog_compat.algorithms import PPO as PPO
from rlcatalog_compat.builder import PPOConfig as PPOConfig
from . import ppo as ppo
