"""Catalog: a set of plugins and lookups in it; `ModelCatalog` is its interface with RLlib's
signatures.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
