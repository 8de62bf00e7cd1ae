"""Relaxed one-hots."""
