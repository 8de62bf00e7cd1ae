"""Catalog parts for rsl_rl: an actor, a critic, PPO with both, an environment wrapper
and conversion.
"""

import lazy_loader

from rlcatalog.frameworks import load_first

# rsl_rl imports TensorBoard, and TensorBoard imports TensorFlow if it is installed.
load_first("triton", before="tensorflow")

# The catalog loads `rlcatalog_rsl_rl.plugin` in every process; PyTorch and rsl_rl are imported at
# first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
