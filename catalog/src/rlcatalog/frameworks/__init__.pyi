from .contract import (
    Backend as Backend,
    Evaluation as Evaluation,
    FrozenBackend as FrozenBackend,
    Learner as Learner,
    Moments as Moments,
    PolicyParts as PolicyParts,
    Step as Step,
)
from .load_order import load_apart as load_apart, load_first as load_first
from .ops import TensorOps as TensorOps, ops_of as ops_of, tensor_ops as tensor_ops
from .sequences import (
    chop_into_sequences as chop_into_sequences,
    lengths_of as lengths_of,
    memory_of as memory_of,
    pad_sequences as pad_sequences,
    padded_length as padded_length,
    sequence_mask as sequence_mask,
    unpad_sequences as unpad_sequences,
    views_of as views_of,
)
from .table import (
    default_framework as default_framework,
    framework_name as framework_name,
    frameworks as frameworks,
    require_framework as require_framework,
)
