from rlcatalog_compat.spaces import FlexDict as FlexDict
