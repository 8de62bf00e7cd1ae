"""The action distribution of Tuple and Dict spaces of rlcatalog, for PyTorch and TensorFlow."""
