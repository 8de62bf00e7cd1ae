"""`rlcatalog check`: the conformance kit on the command line."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from rlcatalog.cli.arguments import key_values
from rlcatalog.cli.isolation import aside
from rlcatalog.cli.json_lines import print_json
from rlcatalog.cli.options import AS_JSON

if TYPE_CHECKING:
    from rlcatalog.testing import Outcome

_EXPECT = typer.Option("--expect", metavar="CASE=REASON", help="A case that is expected to fail; may be given again.")


def _line(outcome: Outcome) -> str:
    """Return a case on one line, with the reason where there is one; below one that failed, what it says and a hint."""
    why = outcome.why.removeprefix(f"{outcome.name}: ")
    if outcome.status == "failed":
        what, _, hint = why.partition(" Hint: ")
        return "\n".join(
            [f"failed   {outcome.name}", f"         {what}", *([f"         Hint: {hint}"] if hint else [])]
        )
    return f"{outcome.status:8} {outcome.name}{f' ({why})' if why else ''}"


def check(
    distribution: Annotated[
        str, typer.Argument(help="An installed package, by the name that pip knows, such as acme-resnet.")
    ],
    expect: Annotated[list[str] | None, _EXPECT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Check every part of an installed plugin against its contract; exit status 1 where one breaks it."""
    with aside():
        from rlcatalog.testing import cases, outcomes

        expected = {case: str(why) for case, why in key_values(expect or [], "--expect").items()}
        ended = list(outcomes(cases(distribution, expected=expected)))
    if as_json:
        print_json([dataclasses.asdict(outcome) for outcome in ended])
    else:
        for outcome in ended:
            print(_line(outcome))
        counts = Counter(outcome.status for outcome in ended)
        print(f"{distribution}: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    if any(outcome.status == "failed" for outcome in ended):
        raise typer.Exit(1)
