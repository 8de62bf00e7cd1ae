from rlcatalog_compat.torch import ConvTranspose2DStack as ConvTranspose2DStack
from rlcatalog_compat.torch import SkipConnection as SkipConnection
from . import convtranspose2d_stack as convtranspose2d_stack
from . import skip_connection as skip_connection
