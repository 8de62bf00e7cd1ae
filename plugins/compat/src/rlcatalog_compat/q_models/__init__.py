"""RLlib's Q-value models, which models with a head of their own derive from."""
