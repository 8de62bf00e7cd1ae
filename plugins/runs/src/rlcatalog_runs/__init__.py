"""Training runs on disk for every engine: one train command, folders, records, checkpoints, curves."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
