from rlcatalog.tf import AttentionWrapper as AttentionWrapper
from rlcatalog.tf import GTrXLNet as GTrXLNet
