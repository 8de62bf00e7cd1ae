from .catalog import Catalog as Catalog, default_catalog as default_catalog
from .default import build as build, explain as explain, load as load, wrap_env as wrap_env
from .model_catalog import ModelCatalog as ModelCatalog
