"""On-policy algorithms for policies that rlcatalog builds.

`from rlcatalog_ppo import PPO`
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
