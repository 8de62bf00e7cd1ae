"""A choice among slates."""
