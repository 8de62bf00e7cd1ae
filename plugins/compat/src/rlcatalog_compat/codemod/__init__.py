"""The command `rlcatalog port`: rewrites code written for RLlib."""
