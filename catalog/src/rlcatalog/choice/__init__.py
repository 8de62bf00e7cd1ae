"""Choice: which part fills which slot, and why.

Candidates say how well they fit; the best rank wins, a name in the config wins over ranks, and a tie is an error.
A `Resolution` is every choice of one lookup, an `Explanation` says it in words.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
