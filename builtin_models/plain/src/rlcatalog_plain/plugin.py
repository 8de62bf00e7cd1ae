"""Plugin declarations: the code that turns plain modules of each framework into models."""

from __future__ import annotations

from rlcatalog import FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            name="torch",
            targets={
                "plain": "rlcatalog_plain.torch:PlainModel",
                "plain_memory": "rlcatalog_plain.memory.torch:PlainMemory",
            },
            summary="plain modules as models",
            extends="rlcatalog-torch/torch",
        ),
        FrameworkSpec(
            name="tf",
            targets={
                "plain": "rlcatalog_plain.tf:PlainModel",
                "plain_memory": "rlcatalog_plain.memory.tf:PlainMemory",
            },
            summary="plain modules as models",
            extends="rlcatalog-tf/tf",
        ),
    ]
