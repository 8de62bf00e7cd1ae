"""Observation filters for rlcatalog.

`from rlcatalog_filters import MeanStdFilter, NoFilter, RunningStat`
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
