from rlcatalog_compat.helpers import deep_update as deep_update
from rlcatalog_compat.helpers import merge_dicts as merge_dicts
