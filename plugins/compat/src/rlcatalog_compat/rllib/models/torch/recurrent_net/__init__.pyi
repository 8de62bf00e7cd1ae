from rlcatalog.torch import LSTMWrapper as LSTMWrapper
from rlcatalog.torch import RecurrentNetwork as RecurrentNetwork
