"""Declared frameworks, and the contracts between a policy and a framework.

The kernel's other subpackages get a framework's targets, such as its backend or its tensor
operations, from the table. They never import a framework directly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
