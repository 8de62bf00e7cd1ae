"""The Gaussian action distributions of rlcatalog, for PyTorch and TensorFlow."""
