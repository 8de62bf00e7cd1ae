"""Training runs on disk, for every engine: the train command, folders, records, checkpoints and
curves.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
