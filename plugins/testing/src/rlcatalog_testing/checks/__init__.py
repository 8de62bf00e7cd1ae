"""Checks for each kind of part, with one function for each line of its contract."""

#: The modules of this package, in the order in which their checks run.
MODULES = (
    "declarations", "ways_in", "keys", "models", "model_inputs", "company", "memories", "distributions", "draws",
    "densities", "codecs", "action_codecs", "filters", "wrappers", "commands", "frameworks", "exporters",
)  # fmt: skip
