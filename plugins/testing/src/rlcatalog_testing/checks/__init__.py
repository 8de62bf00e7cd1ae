"""Checks of each kind of part, one function for each line of its contract."""

#: Its modules, in the order in which their checks run.
MODULES = (
    "declarations", "ways_in", "keys", "models", "model_inputs", "company", "memories", "distributions", "draws",
    "densities", "codecs", "action_codecs", "filters", "wrappers", "commands", "frameworks", "exporters",
)  # fmt: skip
