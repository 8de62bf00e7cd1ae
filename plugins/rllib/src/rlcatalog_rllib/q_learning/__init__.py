"""The RLModule for DQN."""
