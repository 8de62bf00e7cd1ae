"""Plugin declarations: the codec for each kind of space, for observations and for actions."""

from __future__ import annotations

from collections.abc import Callable

from rlcatalog import ActionCodecSpec, Match, PreprocessorSpec, Rank, Request, hookimpl
from rlcatalog.spaces import embedding_size

_EXAMPLES = "rlcatalog_preprocessors.examples"


def _spec(
    name: str,
    target: str,
    summary: str,
    kinds: tuple[str, ...],
    config: str | None = None,
    match: Callable[[Request], Match] | None = None,
    also_reads: tuple[str, ...] = (),
) -> PreprocessorSpec:
    """Return the declaration of a codec for observations."""
    if config is not None:
        config = f"rlcatalog_preprocessors.config:{config}"
    return PreprocessorSpec(
        name,
        {"numpy": f"rlcatalog_preprocessors.{target}"},
        summary,
        config=config,
        kinds=kinds,
        match=match,
        examples=f"{_EXAMPLES}:of_{name}",
        reads=("check_observations", *also_reads),
    )


def match_index(request: Request) -> Match:
    """Match integers that the config leaves unencoded."""
    if request.config.get("_disable_preprocessor_api"):
        return Match(Rank.SPECIFIC, "_disable_preprocessor_api selects unchanged integers")
    size = embedding_size(request.config.get("embeddings"), request.obs)
    if size is not None:
        return Match(Rank.SPECIFIC, f"a net embeds each integer in {size} numbers")
    if request.is_named:
        return Match(Rank.FALLBACK, "leaves integers unencoded")
    return Match(rank=None, why="only with _disable_preprocessor_api or embeddings")


def match_strings(request: Request) -> Match:
    """Match any space of strings that has no other codec."""
    dtype = request.obs.dtype or ""
    is_string_space = dtype.startswith("<U")  # NumPy's name of a dtype of strings
    if is_string_space and request.obs.kind != "text":
        return Match(Rank.FALLBACK, "the space contains strings")
    return Match(rank=None, why="takes spaces of strings")


@hookimpl
def rlcatalog_preprocessors() -> list[PreprocessorSpec]:
    discrete = ("discrete", "multi_discrete")
    return [
        _spec("none", "arrays:NoPreprocessor", "Box: unchanged", ("box",)),
        _spec(
            "multi_binary",
            "arrays:MultiBinaryPreprocessor",
            "MultiBinary: zeros and ones",
            ("multi_binary",),
        ),
        _spec("simplex", "arrays:SimplexPreprocessor", "Simplex: the probabilities", ("simplex",)),
        _spec(
            "onehot", "integers:OneHotPreprocessor", "Discrete, MultiDiscrete: one-hots", discrete
        ),
        _spec(
            "index",
            "integers:IndexPreprocessor",
            "Discrete, MultiDiscrete: the integers themselves, on request",
            discrete,
            match=match_index,
            also_reads=("_disable_preprocessor_api", "embeddings"),
        ),
        _spec(
            "text",
            "text:TextPreprocessor",
            "Text: padded characters and a mask",
            ("text",),
            "TextConfig",
            also_reads=("embeddings",),
        ),
        _spec(
            "strings",
            "text:TextPreprocessor",
            "other spaces of strings: padded characters and a mask",
            (),
            "TextConfig",
            match=match_strings,
            also_reads=("embeddings",),
        ),
        _spec(
            "repeated",
            "lists:RepeatedValuesPreprocessor",
            "Repeated: padded items, lengths",
            ("repeated",),
        ),
        _spec(
            "sequence",
            "lists:RepeatedValuesPreprocessor",
            "Sequence: padded items, lengths",
            ("sequence",),
            "SequenceConfig",
        ),
        _spec(
            "graph",
            "graph:GraphPreprocessor",
            "Graph: padded nodes, edges, links, masks",
            ("graph",),
            "GraphConfig",
        ),
        _spec(
            "oneof",
            "composites:OneOfPreprocessor",
            "OneOf: a tag and the padded branch",
            ("oneof",),
        ),
        _spec(
            "dict",
            "composites:DictFlatteningPreprocessor",
            "Dict: the concatenated children, by key",
            ("dict",),
        ),
        _spec(
            "tuple",
            "composites:TupleFlatteningPreprocessor",
            "Tuple: the concatenated children",
            ("tuple",),
        ),
    ]


def _codec(name: str, target: str, summary: str, kinds: tuple[str, ...] = ()) -> ActionCodecSpec:
    targets = {"numpy": f"rlcatalog_preprocessors.actions.{target}"}
    return ActionCodecSpec(name, targets, summary, kinds=kinds or (name,))


@hookimpl
def rlcatalog_action_codecs() -> list[ActionCodecSpec]:
    return [
        _codec("discrete", "kinds:DiscreteCodec", "one of n values"),
        _codec("multi_discrete", "kinds:MultiDiscreteCodec", "several choices"),
        _codec("multi_binary", "kinds:MultiBinaryCodec", "bits"),
        _codec("box", "kinds:BoxCodec", "numbers or integers between bounds"),
        _codec("simplex", "kinds:SimplexCodec", "probability vectors"),
        _codec(
            "composite",
            "composites:CompositeCodec",
            "the codecs of a Tuple's or Dict's parts",
            ("tuple", "dict"),
        ),
        _codec("oneof", "one_of:OneOfCodec", "the choice of a part, and the codecs of the parts"),
    ]
