"""A features extractor for DQN, SAC and TD3."""
