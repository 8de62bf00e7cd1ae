"""The RLModule for PPO, APPO and IMPALA."""
