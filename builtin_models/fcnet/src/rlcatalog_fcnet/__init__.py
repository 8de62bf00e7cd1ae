"""The fully connected network of rlcatalog, for PyTorch and TensorFlow."""
