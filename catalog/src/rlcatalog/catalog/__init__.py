"""Catalog: one set of plugins and the lookups over it; `ModelCatalog` is RLlib's face of it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
