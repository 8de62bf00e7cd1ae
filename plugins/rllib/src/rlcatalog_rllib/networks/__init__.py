"""What all of this package's RLModules have in common: a catalog's model on Ray's batches."""
