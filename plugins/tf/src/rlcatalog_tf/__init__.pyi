import typing

from .action_critic import (
    ActionCritic as ActionCritic,
    build_action_critic as build_action_critic,
    dueling_values as dueling_values,
)
from .dtypes import (
    HALF as HALF,
    dtype_of as dtype_of,
    floats_as as floats_as,
    to_float32_at_least as to_float32_at_least,
)
from .keras_copies import copy_layer as copy_layer
from .learner import TFLearner as TFLearner, clip_gradient as clip_gradient
from .load_order import before_tensorflow as before_tensorflow
from .model import (
    RecurrentNetwork as RecurrentNetwork,
    RecurrentTFModelV2 as RecurrentTFModelV2,
    TFModelV2 as TFModelV2,
)
from .nn import (
    Dense as Dense,
    DenseStack as DenseStack,
    FreeLogStd as FreeLogStd,
    InputEmbedding as InputEmbedding,
    InputScaling as InputScaling,
    OutputLayers as OutputLayers,
    activation as activation,
    features_of as features_of,
    initial_value as initial_value,
    normc_initializer as normc_initializer,
    values_of as values_of,
)
from .ops import OPS as OPS, flat_sample as flat_sample, flatten_rows as flatten_rows
from .random import (
    draw_categorical as draw_categorical,
    draw_gamma as draw_gamma,
    draw_normal as draw_normal,
    draw_uniform as draw_uniform,
    drawing_from as drawing_from,
)
from .sequences import (
    add_time_dimension as add_time_dimension,
    sequence_mask as sequence_mask,
    steps_of as steps_of,
)
from .variables import (
    find_variables as find_variables,
    has_unbuilt_layers as has_unbuilt_layers,
    is_layer_class as is_layer_class,
    raw_variable as raw_variable,
)

keras: typing.Any
tf: typing.Any

def __getattr__(name: str) -> typing.Any: ...  # classes of other packages' parts

# The installed parts' classes: written by `make generate`.

import rlcatalog_attention.tf
import rlcatalog_autoregressive.tf
import rlcatalog_bounded.tf
import rlcatalog_categorical.tf
import rlcatalog_complex_input.tf
import rlcatalog_deterministic.tf
import rlcatalog_fcnet.tf
import rlcatalog_gaussian.tf
import rlcatalog_lstm.tf
import rlcatalog_multi_action.tf
import rlcatalog_parametric.tf
import rlcatalog_visionnet.tf

AttentionWrapper = rlcatalog_attention.tf.AttentionWrapper
GTrXLNet = rlcatalog_attention.tf.GTrXLNet
AutoregressiveDistribution = rlcatalog_autoregressive.tf.AutoregressiveDistribution
AutoregressiveModel = rlcatalog_autoregressive.tf.AutoregressiveModel
Beta = rlcatalog_bounded.tf.Beta
Dirichlet = rlcatalog_bounded.tf.Dirichlet
Bernoulli = rlcatalog_categorical.tf.Bernoulli
Categorical = rlcatalog_categorical.tf.Categorical
GumbelSoftmax = rlcatalog_categorical.tf.GumbelSoftmax
MultiCategorical = rlcatalog_categorical.tf.MultiCategorical
Quantiles = rlcatalog_categorical.tf.Quantiles
SlateMultiCategorical = rlcatalog_categorical.tf.SlateMultiCategorical
ComplexInputNetwork = rlcatalog_complex_input.tf.ComplexInputNetwork
Deterministic = rlcatalog_deterministic.tf.Deterministic
FullyConnectedNetwork = rlcatalog_fcnet.tf.FullyConnectedNetwork
DiagGaussian = rlcatalog_gaussian.tf.DiagGaussian
SquashedGaussian = rlcatalog_gaussian.tf.SquashedGaussian
GRUWrapper = rlcatalog_lstm.tf.GRUWrapper
LSTMWrapper = rlcatalog_lstm.tf.LSTMWrapper
MultiActionDistribution = rlcatalog_multi_action.tf.MultiActionDistribution
OneOfDistribution = rlcatalog_multi_action.tf.OneOfDistribution
ParametricActionsHead = rlcatalog_parametric.tf.ParametricActionsHead
VisionNetwork = rlcatalog_visionnet.tf.VisionNetwork
