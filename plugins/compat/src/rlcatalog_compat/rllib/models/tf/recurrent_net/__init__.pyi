from rlcatalog_tf import LSTMWrapper as LSTMWrapper
from rlcatalog_tf import RecurrentNetwork as RecurrentNetwork
