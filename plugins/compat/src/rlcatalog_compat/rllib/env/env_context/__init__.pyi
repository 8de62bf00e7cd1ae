from rlcatalog_compat.helpers import EnvContext as EnvContext
