"""What a module of Ray RLlib says of an environment's observations."""
