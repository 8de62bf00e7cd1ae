"""Action distribution for Tuple and Dict spaces in rlcatalog, for PyTorch and TensorFlow."""
