"""The commands `runs`, `compare` and `export`, and training several seeds; only the command line loads them."""
