"""The layers of the transformer, once per framework."""
