from rlcatalog_compat.algorithms import Algorithm as Algorithm
