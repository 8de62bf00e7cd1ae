"""Beta and Dirichlet action distributions for rlcatalog, in PyTorch and TensorFlow."""
