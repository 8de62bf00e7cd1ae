"""rlcatalog's action distribution for Tuple and Dict spaces, in PyTorch and TensorFlow."""
