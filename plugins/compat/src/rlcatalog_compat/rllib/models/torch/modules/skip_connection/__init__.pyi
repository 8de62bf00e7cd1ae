from rlcatalog_compat.layers.torch import SkipConnection as SkipConnection
