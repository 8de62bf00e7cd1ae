import typing

from .action_critic import ActionCritic as ActionCritic, build_action_critic as build_action_critic
from .action_values import dueling_values as dueling_values
from .dtypes import (
    HALF as HALF,
    dtype_of as dtype_of,
    floats_as as floats_as,
    limits_of as limits_of,
    to_float32_at_least as to_float32_at_least,
)
from .distribution_views import TorchDistribution as TorchDistribution, as_torch as as_torch
from .filter_statistics import keep_filter_in_state_dict as keep_filter_in_state_dict
from .learner import TorchLearner as TorchLearner
from .model import RecurrentNetwork as RecurrentNetwork, TorchModelV2 as TorchModelV2
from .nn import (
    DenseStack as DenseStack,
    FreeLogStd as FreeLogStd,
    InputEmbedding as InputEmbedding,
    InputScaling as InputScaling,
    OutputLayers as OutputLayers,
    activation as activation,
    dense as dense,
    features_of as features_of,
    initialize as initialize,
    normc_initializer as normc_initializer,
    values_of as values_of,
)
from .ops import (
    OPS as OPS,
    flat_sample as flat_sample,
    flatten_rows as flatten_rows,
    tensor_interval as tensor_interval,
)
from .part_rates import apply_factors as apply_factors, part_groups as part_groups
from .policy_module import actor_critic as actor_critic
from .sequences import (
    Padding as Padding,
    add_time_dimension as add_time_dimension,
    sequence_mask as sequence_mask,
    steps_of as steps_of,
)

def __getattr__(name: str) -> typing.Any: ...  # classes of other packages' parts

# The installed parts' classes: written by `make generate`.

import rlcatalog_attention.torch
import rlcatalog_autoregressive.torch
import rlcatalog_bounded.torch
import rlcatalog_categorical.torch
import rlcatalog_complex_input.torch
import rlcatalog_deterministic.torch
import rlcatalog_fcnet.torch
import rlcatalog_gaussian.torch
import rlcatalog_lstm.torch
import rlcatalog_multi_action.torch
import rlcatalog_parametric.torch
import rlcatalog_visionnet.torch

AttentionWrapper = rlcatalog_attention.torch.AttentionWrapper
GTrXLNet = rlcatalog_attention.torch.GTrXLNet
AutoregressiveDistribution = rlcatalog_autoregressive.torch.AutoregressiveDistribution
AutoregressiveModel = rlcatalog_autoregressive.torch.AutoregressiveModel
Beta = rlcatalog_bounded.torch.Beta
Dirichlet = rlcatalog_bounded.torch.Dirichlet
Bernoulli = rlcatalog_categorical.torch.Bernoulli
Categorical = rlcatalog_categorical.torch.Categorical
GumbelSoftmax = rlcatalog_categorical.torch.GumbelSoftmax
MultiCategorical = rlcatalog_categorical.torch.MultiCategorical
Quantiles = rlcatalog_categorical.torch.Quantiles
SlateMultiCategorical = rlcatalog_categorical.torch.SlateMultiCategorical
ComplexInputNetwork = rlcatalog_complex_input.torch.ComplexInputNetwork
Deterministic = rlcatalog_deterministic.torch.Deterministic
FullyConnectedNetwork = rlcatalog_fcnet.torch.FullyConnectedNetwork
DiagGaussian = rlcatalog_gaussian.torch.DiagGaussian
SquashedGaussian = rlcatalog_gaussian.torch.SquashedGaussian
GRUWrapper = rlcatalog_lstm.torch.GRUWrapper
LSTMWrapper = rlcatalog_lstm.torch.LSTMWrapper
MultiActionDistribution = rlcatalog_multi_action.torch.MultiActionDistribution
OneOfDistribution = rlcatalog_multi_action.torch.OneOfDistribution
ParametricActionsHead = rlcatalog_parametric.torch.ParametricActionsHead
VisionNetwork = rlcatalog_visionnet.torch.VisionNetwork
