"""Actions: from a model's outputs to environment actions.

`ActionDistribution` is the base class of distributions. The `ActionCodec` of a space converts raw
actions into environment actions and back, encodes past actions for models, and reads action masks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
