from rlcatalog.torch import VisionNetwork as VisionNetwork
