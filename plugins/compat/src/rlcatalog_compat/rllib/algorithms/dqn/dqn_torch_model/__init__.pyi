from rlcatalog_compat.torch import DQNTorchModel as DQNTorchModel
