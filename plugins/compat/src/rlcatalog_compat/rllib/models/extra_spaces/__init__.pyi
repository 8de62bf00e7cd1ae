from rlcatalog.spaces import Simplex as Simplex
