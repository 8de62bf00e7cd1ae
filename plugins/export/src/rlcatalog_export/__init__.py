"""Export of policies as files, and `Actor`, which acts from an exported file without a framework.

Plugins provide the formats (`rlcatalog_exporters`). This package contains the code that all formats share: the
interface of a file, the pipeline from observation to action as tensor operations, and the check of a file against its
policy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
