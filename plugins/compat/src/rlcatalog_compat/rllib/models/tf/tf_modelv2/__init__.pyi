from rlcatalog import ModelV2 as ModelV2
from rlcatalog_tf import TFModelV2 as TFModelV2
