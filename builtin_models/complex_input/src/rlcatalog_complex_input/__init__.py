"""The complex-input network of rlcatalog, for PyTorch and TensorFlow: one net for each part of an observation."""
