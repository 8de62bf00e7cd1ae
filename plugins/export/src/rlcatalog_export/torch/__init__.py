"""Export in PyTorch: a policy as one module of tensors, and the formats that PyTorch writes."""
