"""Action codecs for each kind of Gymnasium space."""
