"""Plugins: hooks, declarations, discovery, loading, and the registry of names.

A plugin returns declarations from hooks. Discovery finds plugins, the loader isolates their errors,
and the registry holds their parts with their owners. `Request` is the argument passed to a
declaration's functions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
