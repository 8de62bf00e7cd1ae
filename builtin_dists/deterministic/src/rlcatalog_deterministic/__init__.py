"""Deterministic action distribution for rlcatalog, in PyTorch and TensorFlow."""
