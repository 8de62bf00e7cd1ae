from rlcatalog.spaces import Repeated as Repeated
