"""Policies for PPO and A2C."""
