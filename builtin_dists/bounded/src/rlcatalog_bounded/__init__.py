"""The Beta and Dirichlet action distributions of rlcatalog, for PyTorch and TensorFlow."""
