from rlcatalog.tf import ComplexInputNetwork as ComplexInputNetwork
