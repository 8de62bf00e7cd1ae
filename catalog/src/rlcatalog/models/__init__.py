"""Models: the contract `ModelV2`, what a model asks to see, its layers, and how a model is put together.

A model is assembled from trunk, memory, head and interface, always in this order.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
