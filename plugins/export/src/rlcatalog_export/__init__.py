"""Export: a policy as one file that acts without it, and `Actor`, which acts from such a file without a framework.

Formats are plugins' (`rlcatalog_exporters`); what all have in common stands here: the interface of an exported policy,
the whole way from an observation to an action as tensor operations, the check of a file against its policy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
