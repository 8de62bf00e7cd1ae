"""Checks for each kind of part, with one function per line of the part's contract."""

#: The modules of this package, in the order in which their checks run.
MODULES = (
    "declarations", "ways_in", "keys", "models", "model_inputs", "company", "memories",
    "distributions", "draws", "densities", "codecs", "action_codecs", "filters", "wrappers",
    "adapters", "commands", "frameworks", "exporters",
)  # fmt: skip
