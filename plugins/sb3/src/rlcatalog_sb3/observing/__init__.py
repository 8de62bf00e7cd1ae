"""What a model sees of the observations Stable-Baselines3 hands a policy."""
