from rlcatalog_torch import AttentionWrapper as AttentionWrapper
from rlcatalog_torch import GTrXLNet as GTrXLNet
