"""The convolutional network of rlcatalog, for PyTorch and TensorFlow."""
