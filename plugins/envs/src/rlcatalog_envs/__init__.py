"""Environments with another interface than that of Gymnasium, for rlcatalog.

`from rlcatalog_envs import ParallelGames`
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
