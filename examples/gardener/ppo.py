"""Train the gardener with rlcatalog's PPO."""

from garden import Garden

from rlcatalog_ppo import PPO

config = {"fcnet_hiddens": [64, 64]}
settings = {"model": config, "total_steps": 200_000}
algo = PPO(Garden, settings)
algo.learn()
algo.policy.save("gardener")
