"""Plugins: hooks, declarations, discovery, loading, and the registry of names.

A plugin returns declarations from hooks; discovery finds it, loading runs it in its own `try`, and the registry holds
its components with their owners. `Request` is the argument of their functions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
