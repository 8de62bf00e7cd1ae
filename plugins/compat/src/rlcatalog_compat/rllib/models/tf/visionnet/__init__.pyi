from rlcatalog.tf import VisionNetwork as VisionNetwork
