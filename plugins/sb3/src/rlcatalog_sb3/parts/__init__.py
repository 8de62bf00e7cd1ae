"""A catalog's parts inside a policy."""
