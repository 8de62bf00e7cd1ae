"""The layers between the parts of an action: MADE, in PyTorch and in TensorFlow."""
