"""The commands `runs`, `compare` and `export`, and training with several seeds; only the command
line loads them.
"""
