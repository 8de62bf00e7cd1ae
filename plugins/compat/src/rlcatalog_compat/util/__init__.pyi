from rlcatalog_compat.decorators import log_once as log_once
from . import debug as debug
