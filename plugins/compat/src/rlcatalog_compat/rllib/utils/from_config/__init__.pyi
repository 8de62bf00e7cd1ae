from rlcatalog_compat.helpers import from_config as from_config
