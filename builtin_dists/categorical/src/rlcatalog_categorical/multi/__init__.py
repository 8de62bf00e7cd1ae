"""Several categorical choices at once."""
