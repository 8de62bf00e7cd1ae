from rlcatalog_compat.offline import JsonReader as JsonReader
