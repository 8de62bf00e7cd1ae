"""What an algorithm of Stable-Baselines3 says of an environment's observations."""
