"""Choice: which part fills which slot, and why.

Each candidate reports how well it fits. The best rank wins, a name in the config takes precedence
over ranks, and a tie is an error. A `Resolution` holds all choices of one lookup, and an
`Explanation` shows them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
