from .catalog import Catalog as Catalog, default_catalog as default_catalog
from .default import make_env as make_env
