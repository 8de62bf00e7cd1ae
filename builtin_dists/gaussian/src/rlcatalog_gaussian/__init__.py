"""Gaussian action distributions for rlcatalog, in PyTorch and TensorFlow."""
