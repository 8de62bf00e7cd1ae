from .action_critics import (
    ActionBounds as ActionBounds,
    CriticTrunk as CriticTrunk,
    build_critic_trunk as build_critic_trunk,
)
from .catalog import (
    Catalog as Catalog,
    EngineWrapper as EngineWrapper,
    class_name as class_name,
    close_env as close_env,
    count_envs as count_envs,
    is_adapter_id as is_adapter_id,
    is_environment as is_environment,
    make_env as make_env,
    makes_vector as makes_vector,
    registered_id as registered_id,
    vector_layout as vector_layout,
    vector_source as vector_source,
)
from .default import catalog_of as catalog_of, default_catalog as default_catalog
from .model_building import build_model as build_model
