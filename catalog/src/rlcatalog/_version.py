"""The version, kept in a separate file for the build backend."""

__version__ = "0.1.0"
