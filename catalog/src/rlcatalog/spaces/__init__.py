"""Spaces: a Gymnasium space, read once into a framework-free tree.

`SpaceInfo` is that tree; `Repeated` and `Simplex` are additional spaces; `RepeatedValues` and
`OneOfValues` are the forms in which models see observations of varying size.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
