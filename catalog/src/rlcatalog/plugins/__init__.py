"""Plugins: the hooks, what they return, how plugins are found and loaded, and who provides which name.

A plugin returns declarations from hooks; discovery finds it, loading runs it in a `try` of its own, and the registry
keeps its components with their owners. `Request` is what their functions are asked.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
