"""Plain modules as models for rlcatalog, in PyTorch and TensorFlow."""
