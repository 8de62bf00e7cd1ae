from rlcatalog_compat.torch import SkipConnection as SkipConnection
