"""Models: the base class `ModelV2`, views of past steps, layers, and the assembly of a model.

A model is assembled from trunk, memory, head and interface, always in this order.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
