from .load_order import ImportGuard as ImportGuard, load_first as load_first
from .ops import (
    Array as Array,
    NumpyOps as NumpyOps,
    Tensor as Tensor,
    TensorOps as TensorOps,
    TensorTree as TensorTree,
    ops_of as ops_of,
    tensor_ops as tensor_ops,
)
from .protocols import (
    Backend as Backend,
    Evaluation as Evaluation,
    Gradient as Gradient,
    Learner as Learner,
    PolicyParts as PolicyParts,
    Step as Step,
)
from .sequences import (
    lengths_list as lengths_list,
    lengths_of as lengths_of,
    memory_of as memory_of,
    padded_length as padded_length,
    views_of as views_of,
)
from .table import (
    default_framework as default_framework,
    framework_name as framework_name,
    frameworks as frameworks,
    require_framework as require_framework,
)
