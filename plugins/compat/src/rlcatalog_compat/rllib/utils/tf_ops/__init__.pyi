from rlcatalog_compat.tensors.tf import explained_variance as explained_variance
from rlcatalog_compat.tensors.tf import flatten_inputs_to_1d_tensor as flatten_inputs_to_1d_tensor
from rlcatalog_compat.tensors.tf import huber_loss as huber_loss
from rlcatalog_compat.tensors.tf import inverse_symlog as inverse_symlog
from rlcatalog_compat.tensors.tf import l2_loss as l2_loss
from rlcatalog_compat.tensors.tf import one_hot as one_hot
from rlcatalog_compat.tensors.tf import reduce_mean_ignore_inf as reduce_mean_ignore_inf
from rlcatalog_compat.tensors.tf import symlog as symlog
