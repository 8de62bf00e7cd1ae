from rlcatalog_compat.q_models.torch import DQNTorchModel as DQNTorchModel
