"""Declarations of the plugin: a preprocessor, a model of its own, and an override."""

from __future__ import annotations

from rlcatalog import Match, ModelSpec, NoMatch, PreprocessorSpec, Rank, Request, Stage, hookimpl


def match_compass(request: Request) -> Match | NoMatch:
    """The codec is for our own kind of space alone."""
    if request.obs.is_a("example_compass.spaces.Compass"):
        return Match(Rank.SPECIFIC, "the space is a Compass")
    return NoMatch("takes Compass spaces only")


def match_vector(request: Request) -> Match | NoMatch:
    """The override fits where fcnet fits best: vectors."""
    if request.encoded_shape is None or len(request.encoded_shape) > 2:
        return NoMatch("takes vectors only")
    return Match(Rank.GENERIC, "the encoded observation is a vector")


def describe_glu(request: Request) -> list[Stage]:
    """The stages `rlcatalog explain` prints."""
    width = request.config["example_compass_width"]
    stages = [Stage("gated layer", (width,))]
    return stages if request.num_outputs is None else [*stages, Stage("logits", (request.num_outputs,))]


@hookimpl
def rlcatalog_preprocessors() -> list[PreprocessorSpec]:
    return [
        PreprocessorSpec(
            name="compass",
            targets={"numpy": "example_compass.preprocessor:CompassPreprocessor"},
            summary="Compass: cosine and sine of the heading",
            match=match_compass,
            examples="example_compass.examples:examples",
        )
    ]


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        # Without a match function a model is only chosen by name: {"custom_model": "glu"}.
        ModelSpec(
            name="glu",
            targets={"torch": "example_compass.torch:GatedNetwork", "tf": "example_compass.tf:GatedNetwork"},
            summary="one gated linear layer",
            describe=describe_glu,
            config="example_compass.config:CompassConfig",
        ),
        # An override answers to its victim's name and names the victim.
        ModelSpec(
            name="fcnet",
            overrides="rlcatalog-fcnet/fcnet",
            targets={"torch": "example_compass.torch:NormalizedNetwork", "tf": "example_compass.tf:NormalizedNetwork"},
            summary="fully connected layers, each followed by layer normalisation",
            match=match_vector,
            reads=("fcnet_hiddens", "fcnet_activation"),
        ),
    ]
