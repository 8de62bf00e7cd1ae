"""Checks of declarations: what a plugin says about its parts before anything of them is imported."""

from __future__ import annotations

from rlcatalog.testing.contract import Part, check, require

EVERY = (
    "trunk", "memory", "head", "action_dist", "preprocessor", "action_codec", "filter", "env_wrapper", "command",
    "framework",
)  # fmt: skip


@check(*EVERY, hint="write one line for `rlcatalog list`", every_framework=False)
def has_a_summary(part: Part) -> None:
    """The summary is one line with text."""
    summary = part.component.declaration.summary
    require(bool(summary.strip()) and "\n" not in summary, f"its summary is {summary!r}")
