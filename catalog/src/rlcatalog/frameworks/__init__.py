"""Declared frameworks, and the contracts between a policy and a framework.

Other rooms get a framework's targets, such as its backend or its tensor operations, from the table. They import no
framework by name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
