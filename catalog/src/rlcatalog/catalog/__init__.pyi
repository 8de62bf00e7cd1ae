from .catalog import Catalog as Catalog
from .default import default_catalog as default_catalog, make_env as make_env
