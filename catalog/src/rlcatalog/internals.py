"""Kernel names for rlcatalog's own library packages; all other packages use the public names.

The library packages are rlcatalog-policy, rlcatalog-export, rlcatalog-testing, rlcatalog-runs and
rlcatalog-cli. They are released together with the kernel, so these names may change in any version.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("rlcatalog", __file__)
