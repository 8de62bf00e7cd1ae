"""Export of policies to files, and `Actor`, which acts from an exported file without a framework.

Plugins provide the formats (`rlcatalog_exporters`). This package contains the code that all formats
share: a file's interface, the pipeline from observation to action as tensor operations, and the
comparison of a file with its policy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
