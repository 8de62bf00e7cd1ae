"""Actions: from a model's outputs to what an environment takes.

`ActionDistribution` is the contract of distributions. The `ActionCodec` of a space turns raw actions into the
environment's and back, into a model's input, and reads masks, which say what is allowed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
