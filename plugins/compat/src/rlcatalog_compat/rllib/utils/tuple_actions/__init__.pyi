from rlcatalog import TupleActions as TupleActions
