"""The commands `runs`, `compare` and `export`, and what trains several seeds; loaded by the command line alone."""
