from rlcatalog_compat.helpers import EnvContext as EnvContext
from . import env_context as env_context
