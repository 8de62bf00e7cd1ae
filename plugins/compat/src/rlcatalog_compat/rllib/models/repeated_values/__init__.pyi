from rlcatalog.spaces import RepeatedValues as RepeatedValues
