"""Nets under RLlib's names that have more there than here."""
