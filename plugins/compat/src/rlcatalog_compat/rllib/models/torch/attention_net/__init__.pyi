from rlcatalog.torch import AttentionWrapper as AttentionWrapper
from rlcatalog.torch import GTrXLNet as GTrXLNet
