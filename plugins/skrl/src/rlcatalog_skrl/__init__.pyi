from .agents import PPO as PPO, PPO_RNN as PPO_RNN
from .conversion import to_policy as to_policy
from .env import CatalogEnv as CatalogEnv
from .model import CatalogModel as CatalogModel
