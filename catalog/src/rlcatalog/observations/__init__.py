"""Observations: encoding an environment's observations as arrays for models, and restoring their structure.

A preprocessor encodes, a filter normalises, `restore_original_dimensions` gives models the structure again;
`TrunkObservation` is what a head leaves of an observation for the trunk.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
