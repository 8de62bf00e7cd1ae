"""Atari environments for rlcatalog: stacked gray frames, and the codecs of pixels and RAM that RLlib knows."""
