from rlcatalog_compat.deprecation import log_once as log_once
