"""Action distributions over finite sets, for PyTorch and TensorFlow."""
