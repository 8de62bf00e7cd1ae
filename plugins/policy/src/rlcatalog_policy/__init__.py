"""Policy: the parts of one lookup joined into one object that acts, remembers, is scored, saved and loaded.

`Step`, `Evaluation` and `Backend` are the contract with a framework.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
