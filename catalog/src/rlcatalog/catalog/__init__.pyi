from .catalog import Catalog as Catalog, make_env as make_env
from .default import default_catalog as default_catalog
