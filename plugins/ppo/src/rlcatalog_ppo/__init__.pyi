from .a2c import A2C as A2C, A2CTrainer as A2CTrainer
from .pg import PG as PG, PGTrainer as PGTrainer
from .ppo import PPO as PPO, PPOTrainer as PPOTrainer
