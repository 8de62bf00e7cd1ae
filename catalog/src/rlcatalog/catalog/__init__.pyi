from .catalog import Catalog as Catalog, close_env as close_env, make_env as make_env
from .default import catalog_of as catalog_of, default_catalog as default_catalog
from .model_building import build_model as build_model
