"""Catalog parts for agents that steer by a compass."""
