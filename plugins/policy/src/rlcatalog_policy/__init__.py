"""Policy: the parts of one lookup as one object that acts, keeps memory, trains, saves and
loads.

A framework implements `rlcatalog.frameworks.Backend` for it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
