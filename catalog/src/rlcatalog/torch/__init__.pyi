import typing

from .dtypes import dtype_of as dtype_of
from .model import RecurrentNetwork as RecurrentNetwork, TorchModelV2 as TorchModelV2
from .nn import (
    DenseStack as DenseStack,
    FreeLogStd as FreeLogStd,
    OutputLayers as OutputLayers,
    activation as activation,
    dense as dense,
    features_of as features_of,
    initialize as initialize,
    normc_initializer as normc_initializer,
)
from .ops import fill_forbidden as fill_forbidden, flatten_rows as flatten_rows, side_by_side as side_by_side
from .outputs import flat_sample as flat_sample, values_of as values_of
from .sequences import (
    Padding as Padding,
    add_time_dimension as add_time_dimension,
    sequence_mask as sequence_mask,
    steps_of as steps_of,
)

def __getattr__(name: str) -> typing.Any: ...  # the installed parts' classes
