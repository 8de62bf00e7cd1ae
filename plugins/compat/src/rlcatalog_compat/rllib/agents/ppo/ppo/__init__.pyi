from rlcatalog_compat.algorithms import DEFAULT_CONFIG as DEFAULT_CONFIG
from rlcatalog_compat.algorithms import PPOConfig as PPOConfig
from rlcatalog_compat.algorithms import PPOTrainer as PPOTrainer
