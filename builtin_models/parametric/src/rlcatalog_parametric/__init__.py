"""Parametric actions: a head that reads action masks and embeddings of the available actions."""
