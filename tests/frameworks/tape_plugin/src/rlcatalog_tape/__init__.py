"""The framework `tape` for rlcatalog."""
