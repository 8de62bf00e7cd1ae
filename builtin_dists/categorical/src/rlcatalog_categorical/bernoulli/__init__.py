"""Independent bits."""
