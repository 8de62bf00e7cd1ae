from .assembly import Host as Host, assemble as assemble
from .constructing import ModelPart as ModelPart
from .inside import (
    Inside as Inside,
    check_time_major as check_time_major,
    held_by as held_by,
    in_row_order as in_row_order,
    is_model as is_model,
    models_inside as models_inside,
    set_weights_of as set_weights_of,
    weights_of as weights_of,
)
from .layers import (
    DenseSpec as DenseSpec,
    OutputPlan as OutputPlan,
    dense_specs as dense_specs,
    output_plan as output_plan,
    output_spec as output_spec,
    post_fcnet as post_fcnet,
)
from .model import (
    ModelV2 as ModelV2,
    check_features as check_features,
    check_values as check_values,
    check_weights as check_weights,
    inner_model as inner_model,
    last_values as last_values,
)
from .past_inputs import Past as Past, memory_outputs as memory_outputs
from .separate_value import SeparateValue as SeparateValue, ValueSide as ValueSide
