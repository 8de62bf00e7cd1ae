from rlcatalog.tf import LSTMWrapper as LSTMWrapper
from rlcatalog.tf import RecurrentNetwork as RecurrentNetwork
