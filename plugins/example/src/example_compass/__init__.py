"""Parts for agents that steer by a compass."""
