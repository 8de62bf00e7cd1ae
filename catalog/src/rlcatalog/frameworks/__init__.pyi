from .load_order import (
    before_tensorflow as before_tensorflow,
    before_torch_optimizers as before_torch_optimizers,
    load_first as load_first,
)
from .ops import NUMPY_OPS as NUMPY_OPS, TensorOps as TensorOps, ops_of as ops_of, tensor_ops as tensor_ops
from .table import (
    Framework as Framework,
    add_framework as add_framework,
    default_framework as default_framework,
    forget_framework as forget_framework,
    framework_name as framework_name,
    frameworks as frameworks,
    require_framework as require_framework,
)
