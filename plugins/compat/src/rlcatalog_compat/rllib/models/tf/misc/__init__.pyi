from rlcatalog_compat.frameworks import get_activation_fn as get_activation_fn
from rlcatalog_compat.tensors.tf import flatten as flatten
from rlcatalog_tf import normc_initializer as normc_initializer
