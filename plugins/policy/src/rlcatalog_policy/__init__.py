"""Policy: the parts of one lookup joined into one object that acts, remembers, is scored, saved and loaded.

What a framework does for it is `rlcatalog.frameworks.Backend`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
