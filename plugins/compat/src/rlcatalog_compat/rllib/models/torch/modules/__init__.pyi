from rlcatalog_compat.layers.torch import SkipConnection as SkipConnection
from . import skip_connection as skip_connection
