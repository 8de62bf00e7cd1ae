from rlcatalog_tf import VisionNetwork as VisionNetwork
