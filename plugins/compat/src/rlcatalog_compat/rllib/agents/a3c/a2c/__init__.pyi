from rlcatalog_compat.algorithms import A2CTrainer as A2CTrainer
