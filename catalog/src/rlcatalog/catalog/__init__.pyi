from .catalog import Catalog as Catalog, default_catalog as default_catalog
from .default import (
    explain as explain,
    refresh as refresh,
    register_action_dist as register_action_dist,
    register_filter as register_filter,
    register_model as register_model,
    register_preprocessor as register_preprocessor,
    wrap_env as wrap_env,
)
from .environments import make_env as make_env
from .model_catalog import ModelCatalog as ModelCatalog
