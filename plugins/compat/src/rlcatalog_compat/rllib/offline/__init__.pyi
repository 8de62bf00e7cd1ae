from rlcatalog_ppo.offline import Reader as JsonReader
from . import json_reader as json_reader
