"""Testing: the conformance kit, catalogs of selected plugins, and comparisons of engines."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
