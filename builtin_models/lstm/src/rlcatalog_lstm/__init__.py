"""LSTM for rlcatalog, in PyTorch and TensorFlow."""
