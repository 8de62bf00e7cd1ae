"""Spaces: what a Gymnasium space is, read once into a tree without any framework.

`SpaceInfo` is that tree; `Repeated` and `Simplex` are spaces beside Gymnasium's own; `RepeatedValues` and
`OneOfValues` are what models see of observations that vary in size.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
