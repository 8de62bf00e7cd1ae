from rlcatalog import MODEL_DEFAULTS as MODEL_DEFAULTS
from rlcatalog import ModelCatalog as ModelCatalog
