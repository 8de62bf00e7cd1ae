"""Observations: encoding an environment's observations as arrays for models, and restoring their
structure.

A preprocessor encodes, a filter normalises, and `restore_original_dimensions` restores the
structure for models. `VisibleObservation` is the part of an observation that a head leaves to its
trunk.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
