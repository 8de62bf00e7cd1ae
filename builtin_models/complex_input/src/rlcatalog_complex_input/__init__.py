"""The complex-input network of rlcatalog, for PyTorch and TensorFlow: a net for each part of an observation."""
