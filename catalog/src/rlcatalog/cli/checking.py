"""`rlcatalog check`: the conformance kit on the command line."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Annotated

import typer

from rlcatalog.cli.arguments import key_values
from rlcatalog.cli.isolation import aside

_EXPECT = typer.Option("--expect", metavar="CASE=REASON", help="A case that is expected to fail; may be given again.")


def check(
    distribution: Annotated[str, typer.Argument(help="An installed distribution, such as acme-resnet.")],
    expect: Annotated[list[str] | None, _EXPECT] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of lines.")] = False,
) -> None:
    """Check every part of an installed plugin against its contract."""
    with aside():
        from rlcatalog.testing import cases, outcomes

        expected = {case: str(why) for case, why in key_values(expect or [], "--expect").items()}
        ended = list(outcomes(cases(distribution, expected=expected)))
    if as_json:
        print(json.dumps([dataclasses.asdict(outcome) for outcome in ended], indent=2))
    else:
        for outcome in ended:
            print(f"{outcome.status:8} {outcome.why if outcome.status == 'failed' else outcome.name}")
        counts = Counter(outcome.status for outcome in ended)
        print(f"{distribution}: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    if any(outcome.status == "failed" for outcome in ended):
        raise typer.Exit(1)
