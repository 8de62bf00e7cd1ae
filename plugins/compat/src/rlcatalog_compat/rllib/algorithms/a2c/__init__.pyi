from rlcatalog_compat.algorithms import A2C as A2C
