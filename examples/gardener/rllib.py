"""Train the gardener with PPO of Ray RLlib."""

from garden import Garden
from ray.rllib.algorithms.ppo import PPOConfig

from rlcatalog_rllib import configure, to_policy

config = {"fcnet_hiddens": [64, 64]}
algo = configure(PPOConfig(), Garden, model=config).build_algo()
while algo.train()["num_env_steps_sampled_lifetime"] < 200_000:
    pass
to_policy(algo).save("gardener")
