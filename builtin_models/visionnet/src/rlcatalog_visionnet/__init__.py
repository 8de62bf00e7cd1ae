"""Convolutional network for rlcatalog, in PyTorch and TensorFlow."""
