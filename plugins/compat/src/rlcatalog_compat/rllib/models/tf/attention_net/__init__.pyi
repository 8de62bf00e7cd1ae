from rlcatalog_tf import AttentionWrapper as AttentionWrapper
from rlcatalog_tf import GTrXLNet as GTrXLNet
