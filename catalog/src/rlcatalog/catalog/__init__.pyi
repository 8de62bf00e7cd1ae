from .catalog import Catalog as Catalog
from .default import default_catalog as default_catalog
from .environments import make_env as make_env
