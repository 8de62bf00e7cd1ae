"""Train the gardener with PPO of Stable-Baselines3."""

from garden import Garden
from stable_baselines3 import PPO

from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

config = {"fcnet_hiddens": [64, 64]}
algo = PPO(CatalogPolicy, for_sb3(Garden, config))
algo.learn(200_000)
to_policy(algo).save("gardener")
