from .algorithms import (
    A2C as A2C,
    PG as PG,
    PPO as PPO,
    A2CTrainer as A2CTrainer,
    A3CTrainer as A3CTrainer,
    PGTrainer as PGTrainer,
    PPOTrainer as PPOTrainer,
)
