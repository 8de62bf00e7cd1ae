from rlcatalog_compat.algorithms import register_env as register_env
from . import logger as logger
from . import registry as registry
from . import utils as utils
