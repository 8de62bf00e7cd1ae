"""Actions: from a model's outputs to what an environment takes.

`ActionDistribution` is the contract of distributions; masks say what is allowed, the adapter turns raw actions into
the environment's, and past actions become a model's input again.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
