"""Train the gardener with PPO of Ray RLlib."""

from garden import Garden
from ray.rllib.algorithms.ppo import PPOConfig

from rlcatalog_rllib import configure, to_policy

config = {"fcnet_hiddens": [64, 64]}
settings = configure(PPOConfig(), Garden, model=config)
algo = settings.build_algo()
for _ in range(50):
    algo.train()
to_policy(algo).save("gardener")
