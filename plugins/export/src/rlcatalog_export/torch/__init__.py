"""Export from PyTorch: a policy as a module on tensors, and PyTorch's file formats."""
