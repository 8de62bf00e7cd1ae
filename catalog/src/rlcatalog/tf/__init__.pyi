import typing

from .model import (
    RecurrentNetwork as RecurrentNetwork,
    RecurrentTFModelV2 as RecurrentTFModelV2,
    TFModelV2 as TFModelV2,
)
from .nn import (
    Dense as Dense,
    DenseStack as DenseStack,
    FreeLogStd as FreeLogStd,
    OutputLayers as OutputLayers,
    activation as activation,
    features_of as features_of,
    initial_value as initial_value,
    normc_initializer as normc_initializer,
)
from .ops import (
    fill_forbidden as fill_forbidden,
    flatten_rows as flatten_rows,
    integers as integers,
    reshape_last as reshape_last,
    side_by_side as side_by_side,
)
from .outputs import flat_sample as flat_sample, values_of as values_of
from .sequences import add_time_dimension as add_time_dimension, sequence_mask as sequence_mask, steps_of as steps_of
from .variables import find as find

keras: typing.Any
tf: typing.Any

def __getattr__(name: str) -> typing.Any: ...  # the installed parts' classes
