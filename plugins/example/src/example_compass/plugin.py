"""Plugin declarations: a preprocessor and two models."""

from __future__ import annotations

from rlcatalog import ModelSpec, PreprocessorSpec, Request, Stage, hookimpl


def describe_glu(request: Request) -> list[Stage]:
    """Return the stages that `rlcatalog explain` prints."""
    width = request.config["example_compass_width"]
    stages = [Stage("gated layer", (width,))]
    if request.num_outputs is not None:
        stages.append(Stage("logits", (request.num_outputs,)))
    return stages


@hookimpl
def rlcatalog_preprocessors() -> list[PreprocessorSpec]:
    return [
        PreprocessorSpec(
            name="example_compass",
            targets={"numpy": "example_compass.preprocessor:CompassPreprocessor"},
            summary="Compass: cosine and sine of the heading",
            kinds=("example_compass.spaces.Compass",),
            examples="example_compass.examples:examples",
        )
    ]


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        # Without a match function, a model is chosen only by name: {"custom_model":
        # "example_compass_glu"}.
        ModelSpec(
            name="example_compass_glu",
            targets={
                "torch": "example_compass.torch:GatedNetwork",
                "tf": "example_compass.tf:GatedNetwork",
            },
            summary="one gated linear layer",
            describe=describe_glu,
            config="example_compass.config:CompassConfig",
        ),
        ModelSpec(
            name="example_compass_normalized",
            targets={
                "torch": "example_compass.torch:NormalizedNetwork",
                "tf": "example_compass.tf:NormalizedNetwork",
            },
            summary="fully connected layers, each followed by layer normalisation",
            reads=("fcnet_hiddens", "fcnet_activation"),
        ),
    ]
