"""Fully connected network for rlcatalog, in PyTorch and TensorFlow."""
