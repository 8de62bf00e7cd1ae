"""Tensor functions that RLlib's models and losses use."""
