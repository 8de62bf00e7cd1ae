"""Checks that the net which sees ids looks them up, and does not read them as numbers."""

from __future__ import annotations

from collections.abc import Collection

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.plugins import Part, Request


def check_trunk_embeds(trunk: Part, request: Request, keys: Collection[str]) -> None:
    """Raise an error unless a trunk embeds the ids that it sees.

    A class in RLlib's form may embed them itself, and reads the whole config.

    Args:
        trunk: The trunk.
        request: The request as the trunk sees it.
        keys: The config keys that the trunk reads.

    Raises:
        ConfigError: It would read them as numbers.
        NotServedError: Another package's code for the framework would.
    """
    if trunk.undeclared or not request.embedded:
        return
    paths = " and ".join(leaf.path for leaf in request.embedded)
    for extension in trunk.extensions.get(request.framework or "", ()):
        if "embeddings" not in extension.declaration.reads:
            raise NotServedError(
                f"embeddings: the code of {trunk.name!r} for framework={request.framework!r}"
                f" ({extension.provider}) does not look ids up in a table, so it would read those"
                f" of {paths} as numbers. Remove them from embeddings. If you maintain this code,"
                " let it look them up, and declare reads=('embeddings',)."
            )
    if "embeddings" in keys:
        return
    raise ConfigError(
        f"embeddings: {trunk.name!r} does not look ids up in a table, so it would read those of"
        f" {paths} as numbers. Choose another model, or remove them from embeddings."
        " To embed them in your own model, set _disable_preprocessor_api=True instead, and for a"
        " Text text_encoding='index'."
    )


def check_head_reads_no_ids(request: Request, request_of_trunk: Request) -> None:
    """Raise an error if a head reads a leaf with ids itself, which heads do not look up.

    Args:
        request: The request as the head sees it.
        request_of_trunk: The request about what the head leaves to the trunk.

    Raises:
        ConfigError: It does.
    """
    seen_by_trunk = {leaf.path for leaf in request_of_trunk.embedded}
    for leaf in request.embedded:
        if leaf.path not in seen_by_trunk:
            raise ConfigError(
                f"embeddings: {leaf.path} is read by the head, which does not look ids up in a"
                " table. Remove it from embeddings."
            )
