"""The version, in a separate file that the build backend reads."""

__version__ = "0.1.0"
