"""Attention over the last steps (GTrXL) for rlcatalog, in PyTorch and TensorFlow."""
