"""Functions of tensors that RLlib's models and losses use."""
