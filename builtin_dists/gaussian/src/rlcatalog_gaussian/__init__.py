"""The diagonal Gaussian action distribution of rlcatalog, for PyTorch and TensorFlow."""
