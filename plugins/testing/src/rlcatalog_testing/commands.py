"""The command `check`, which runs the conformance kit, and the command `new`, which creates a
plugin.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlcatalog_cli import AS_JSON, key_values, print_json, redirect_stdout, show_items
from rlcatalog_testing.scaffold import (
    KINDS,
    chosen_frameworks,
    extras_of,
    is_prepared,
    package_files,
    preparation,
    write_package,
)

if TYPE_CHECKING:
    from rlcatalog_testing import Case, Outcome

#: Environment variables that limit PyTorch and TensorFlow to one thread. The kit's models are so
#: small that several threads would wait for one another longer than they compute.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
}  # fmt: skip

_EXPECT = typer.Option(
    "--expect", metavar="CASE=REASON", help="Name of a case that is expected to fail; repeatable."
)


def _line(outcome: Outcome) -> str:
    """Return a case as one line, with its reason, if any; after a failed case, the message and the
    hint follow.
    """
    why = outcome.why.removeprefix(f"{outcome.name}: ")
    if outcome.status == "failed":
        text = why.replace(" Hint: ", "\n         Hint: ", 1)
        return f"failed   {outcome.name}\n         {text}"
    line = f"{outcome.status:8} {outcome.name}"
    if why:
        line += f" ({why})"
    return line


def check(
    distribution: Annotated[
        str, typer.Argument(help="An installed package under its pip name, such as acme-resnet.")
    ],
    expect: Annotated[list[str] | None, _EXPECT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Check every part of an installed plugin against its contract; exit with status 1 if a part
    fails.

    Faults of other packages do not count. They are listed at the end.
    """
    with redirect_stdout(), _one_thread():
        from rlcatalog_testing import cases, outcomes

        reasons = key_values(expect or [], "--expect")
        expected = {case: str(why) for case, why in reasons.items()}
        all_cases = cases(distribution, expected=expected)
        if as_json:
            results = list(outcomes(all_cases))
        else:
            results = _run_and_print(all_cases)
    if as_json:
        print_json([dataclasses.asdict(outcome) for outcome in results])
    else:
        print("\n".join(_summary(distribution, results)))
    if any(outcome.status in ("failed", "blocked") for outcome in results):
        raise typer.Exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let frameworks that are imported in this block use one thread, unless the user has set a
    number.
    """
    ours = {name: number for name, number in _ONE_THREAD.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _run_and_print(cases: Sequence[Case]) -> list[Outcome]:
    """Run cases, show their progress, and print a line for each."""
    from rlcatalog_testing import outcome_of

    results = []
    with show_items("check", len(cases)) as items:
        for case in cases:
            items.begin(str(case))
            outcome = outcome_of(case)
            items.print(_line(outcome))
            results.append(outcome)
    return results


def _summary(distribution: str, results: Sequence[Outcome]) -> Iterator[str]:
    """Yield lines with the numbers of results and the faults of other packages."""
    counts = Counter(outcome.status for outcome in results)
    numbers = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    yield f"{distribution}: {numbers}"
    blocking = _notes(outcome for outcome in results if outcome.status == "blocked")
    others = [note for note in _notes(results) if note not in blocking]
    if blocking:
        yield (
            f"{distribution} cannot be checked in full, because parts of other packages that the"
            " blocked checks need are faulty:"
        )
        for note in blocking:
            yield f"  {note}"
    if others:
        yield f"note: Other packages have faults, which do not count against {distribution}:"
        for note in others:
            yield f"  {note}"


def _notes(results: Iterable[Outcome]) -> list[str]:
    """Return the notes of outcomes, each once."""
    notes: dict[str, None] = {}
    for outcome in results:
        notes.update(dict.fromkeys(outcome.notes))
    return list(notes)


def new(
    kind: Annotated[str, typer.Argument(help=f"Kind of part: {', '.join(KINDS)}.")],
    name: Annotated[
        str, typer.Argument(help="Name of the package and of its folder, such as acme-resnet.")
    ],
    frameworks: Annotated[
        str | None,
        typer.Option(
            metavar="torch,tf", help="The frameworks that the part supports; both by default."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder in which to create the package.")] = Path(),
) -> None:
    """Write a new plugin package, with a working part and its tests, for you to change."""
    framework_names: list[str] | None = None
    if frameworks is not None:
        framework_names = [name.strip() for name in frameworks.split(",")]
    files = package_files(kind, name, framework_names)
    folder = out / name
    write_package(folder, files)
    typer.echo(f"{folder}: {len(files)} files. README.md describes each file. Next:")
    supported = chosen_frameworks(kind, framework_names)
    install_first = preparation(supported)
    if install_first and not is_prepared(supported):
        typer.echo(f"  {install_first}")
    typer.echo(f"  cd {folder}")
    typer.echo(f'  pip install -e ".[{extras_of(supported)}]"')
    typer.echo("  pytest")
