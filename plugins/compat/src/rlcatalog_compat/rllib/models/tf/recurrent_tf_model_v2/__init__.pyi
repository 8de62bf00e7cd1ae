from rlcatalog.tf import RecurrentNetwork as RecurrentNetwork
from rlcatalog.tf import RecurrentTFModelV2 as RecurrentTFModelV2
