"""The LSTM of rlcatalog, for PyTorch and TensorFlow."""
