from .assembly import assemble as assemble
from .bookkeeping import (
    ModelBookkeeping as ModelBookkeeping,
    RecurrentBase as RecurrentBase,
    check_time_major as check_time_major,
    get_submodel as get_submodel,
    is_model as is_model,
    models_inside as models_inside,
    set_weights_of as set_weights_of,
    weights_of as weights_of,
)
from .construction import ModelPart as ModelPart
from .layers import (
    DensePlan as DensePlan,
    DenseSpec as DenseSpec,
    dense_specs as dense_specs,
    hidden_spec as hidden_spec,
    init_recipe as init_recipe,
    output_spec as output_spec,
    plan_dense_layers as plan_dense_layers,
    post_fcnet as post_fcnet,
    value_spec as value_spec,
)
from .model import (
    ModelV2 as ModelV2,
    check_features as check_features,
    check_values as check_values,
    check_weights as check_weights,
    inner_model as inner_model,
    last_values as last_values,
)
from .past_inputs import PastInputs as PastInputs, memory_outputs as memory_outputs
from .plain import (
    code_of as code_of,
    copies_instances as copies_instances,
    copying_instances as copying_instances,
)
from .separate_critic import SeparateCritic as SeparateCritic
from .weights_by_part import (
    chain_inside as chain_inside,
    is_of_value as is_of_value,
    parts_with_own_rate as parts_with_own_rate,
)
from .wrappers import (
    LayersAfterMemory as LayersAfterMemory,
    ModelWrapper as ModelWrapper,
    SeparateValue as SeparateValue,
)
