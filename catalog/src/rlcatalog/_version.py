"""The version, in a file of its own so that the build backend can read it."""

__version__ = "0.1.0"
