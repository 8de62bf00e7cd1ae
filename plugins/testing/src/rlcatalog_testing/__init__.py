"""Testing: the conformance kit, catalogs of just the plugins one names, and whether engines agree."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
