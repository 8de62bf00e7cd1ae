"""Distributions for Tuple, Dict and OneOf action spaces in rlcatalog, in PyTorch and TensorFlow."""
