"""Preprocessors of rlcatalog: one codec per kind of Gymnasium space."""
