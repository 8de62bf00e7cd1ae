"""Catalog parts for skrl: an environment wrapper, a model, PPO with and without a memory,
and conversion.
"""

import lazy_loader

from rlcatalog.frameworks import load_first

# skrl imports TensorBoard, and TensorBoard imports TensorFlow if it is installed.
load_first("triton", before="tensorflow")

# The catalog loads `rlcatalog_skrl.plugin` in every process; PyTorch and skrl are imported at first
# use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
