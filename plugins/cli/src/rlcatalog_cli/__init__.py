"""Command line: `list` and `explain`, and the commands that the installed plugins add."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
