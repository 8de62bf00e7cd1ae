"""Atari environments for rlcatalog: stacked gray frames, and RLlib's codecs for pixels and RAM."""
