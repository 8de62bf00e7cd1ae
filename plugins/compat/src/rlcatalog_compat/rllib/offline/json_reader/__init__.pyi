from rlcatalog_ppo.offline import Reader as JsonReader
