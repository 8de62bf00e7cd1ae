"""The deterministic action distribution of rlcatalog, for PyTorch and TensorFlow."""
