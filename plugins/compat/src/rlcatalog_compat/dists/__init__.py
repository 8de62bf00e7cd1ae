"""Base classes of RLlib's action distributions."""
