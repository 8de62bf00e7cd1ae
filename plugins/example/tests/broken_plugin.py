"""A variant of the plugin that does not load: its hook is misspelt."""

from rlcatalog import ModelSpec, hookimpl


@hookimpl
def rlcatalog_model():
    return [
        ModelSpec(
            "example_compass_glu",
            {"torch": "example_compass.torch:GatedNetwork"},
            "one gated linear layer",
        )
    ]
