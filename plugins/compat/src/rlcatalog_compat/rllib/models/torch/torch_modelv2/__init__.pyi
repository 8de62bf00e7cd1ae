from rlcatalog import ModelV2 as ModelV2
from rlcatalog_torch import TorchModelV2 as TorchModelV2
