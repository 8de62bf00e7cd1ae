from rlcatalog_compat.offline import JsonReader as JsonReader
from . import json_reader as json_reader
