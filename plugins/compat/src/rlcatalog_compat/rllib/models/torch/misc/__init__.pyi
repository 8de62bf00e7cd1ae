from rlcatalog_compat.arrays import same_padding as same_padding
from rlcatalog_compat.arrays import valid_padding as valid_padding
from rlcatalog_compat.frameworks import get_activation_fn as get_activation_fn
from rlcatalog_compat.torch import AppendBiasLayer as AppendBiasLayer
from rlcatalog_compat.torch import Reshape as Reshape
from rlcatalog_compat.torch import SlimConv2d as SlimConv2d
from rlcatalog_compat.torch import SlimFC as SlimFC
from rlcatalog_torch import normc_initializer as normc_initializer
