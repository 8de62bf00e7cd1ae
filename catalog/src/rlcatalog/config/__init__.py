"""Config: one flat dictionary for users, one typed struct per part inside.

The schema is the table of all keys. This subpackage also contains the kernel's keys, the names of
activations and initialisers, and older key names.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
