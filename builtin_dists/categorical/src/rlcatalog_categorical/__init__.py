"""The categorical action distribution of rlcatalog, for PyTorch and TensorFlow."""
