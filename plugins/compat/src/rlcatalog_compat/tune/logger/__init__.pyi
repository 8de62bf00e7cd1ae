from rlcatalog_compat.helpers import pretty_print as pretty_print
