"""Policies that act without Stable-Baselines3."""
