from rlcatalog_compat.arrays import standardized as standardized
