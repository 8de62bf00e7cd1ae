"""Policies of PyTorch's, frozen: what one does in a step, recorded, and what repeats it."""
