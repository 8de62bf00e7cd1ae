"""A policy for RecurrentPPO."""
