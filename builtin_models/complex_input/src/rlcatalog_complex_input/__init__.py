"""Complex-input network for rlcatalog, in PyTorch and TensorFlow: one net for each part of an
observation.
"""
