"""Layers that RLlib's models are built of."""
