"""Codecs for Gymnasium's spaces, for observations and for actions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
