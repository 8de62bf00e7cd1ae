"""Declarations: which codec serves which kind of space."""

from __future__ import annotations

from collections.abc import Callable

from rlcatalog import Match, NoMatch, PreprocessorSpec, Rank, Request, hookimpl


def _serves(*kinds: str) -> Callable[[Request], Match | NoMatch]:
    def match(request: Request) -> Match | NoMatch:
        if request.obs.kind in kinds:
            return Match(Rank.GENERIC, f"the space is a {request.obs.kind}")
        return NoMatch(f"takes {' or '.join(kinds)}, not {request.obs.kind}")

    return match


def _spec(name: str, cls: str, kind: str, summary: str) -> PreprocessorSpec:
    target = f"rlcatalog_preprocessors.codecs:{cls}"
    return PreprocessorSpec(name, {"numpy": target}, summary, match=_serves(kind), reads=("check_observations",))


@hookimpl
def rlcatalog_preprocessors() -> list[PreprocessorSpec]:
    return [
        _spec("none", "NoPreprocessor", "box", "Box: handed on as it is"),
        _spec("onehot", "OneHotPreprocessor", "discrete", "Discrete: one-hot"),
        _spec("dict", "DictFlatteningPreprocessor", "dict", "Dict: the children side by side, by key"),
        _spec("tuple", "TupleFlatteningPreprocessor", "tuple", "Tuple: the children side by side"),
    ]
