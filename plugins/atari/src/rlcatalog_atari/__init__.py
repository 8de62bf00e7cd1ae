"""Atari environments for rlcatalog: stacked gray frames, and RLlib's codecs of pixels and RAM."""
