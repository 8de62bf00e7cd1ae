"""Export in PyTorch: a policy as a module of tensors, and PyTorch's file formats."""
