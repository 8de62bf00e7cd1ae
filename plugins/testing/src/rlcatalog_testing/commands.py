"""The command `check`, which runs the conformance kit, and the command `new`, which creates a
plugin.
"""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlcatalog_cli import AS_JSON, key_values, print_json, redirect_stdout, show_items
from rlcatalog_testing.scaffold import (
    KINDS,
    PACKAGE,
    chosen_frameworks,
    extras_of,
    is_prepared,
    kinds_of,
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

#: Columns of the screen, and the indent of what is below a case.
_WIDTH = 100
_INDENT = " " * 9
#: Lines of the reason of a skipped case; longer ones are cut.
_MOST_LINES = 2

_EXPECT = typer.Option(
    "--expect", metavar="CASE=REASON", help="Name of a case that is expected to fail; repeatable."
)


def _line(outcome: Outcome, first_failures: dict[str, str]) -> str:
    """Return a case as one line, with its reason below it unless it fits.

    Args:
        outcome: The result of the case.
        first_failures: Cause → the first case that it failed. Later ones refer to it.
    """
    from rlcatalog_testing.runner import cause_of

    line = f"{outcome.status:8} {outcome.name}"
    why = outcome.why.removeprefix(f"{outcome.name}: ")
    if outcome.status == "failed":
        first = first_failures.setdefault(cause_of(outcome), outcome.name)
        if first != outcome.name:
            reference = f"For the same reason as {first}."
            return f"{line}\n{_indented(reference)}"
        cause, _, hint = why.partition(" Hint: ")
        line = f"{line}\n{_indented(cause)}"
        if hint:
            advice = f"Hint: {hint}"
            line += f"\n{_indented(advice)}"
        return line
    if not why:
        return line
    if len(line) + len(why) + 3 <= _WIDTH:
        return f"{line} ({why})"
    reason = _indented(f"({why})").splitlines()
    if outcome.status == "skipped" and len(reason) > _MOST_LINES:
        reason = reason[:_MOST_LINES]
        reason.append(f"{_INDENT}… (all of it: --json)")
    return "\n".join([line, *reason])


def _indented(text: str) -> str:
    """Return a text below a case, in lines that fit into a terminal."""
    lines = []
    for paragraph in text.splitlines():
        lines += textwrap.wrap(
            paragraph,
            _WIDTH,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


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

    results: list[Outcome] = []
    first_failures: dict[str, str] = {}
    with show_items("check", len(cases)) as items:
        for case in cases:
            items.begin(str(case))
            outcome = outcome_of(case)
            items.print(_line(outcome, first_failures))
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
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"Kind of part: {', '.join(KINDS)}; or {PACKAGE}, for several of them.",
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the package and of its folder, such as acme-resnet."
        ),
    ],
    contents: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="KIND,KIND",
            help=f"The kinds of the parts of a {PACKAGE}, such as model,distribution,codec.",
        ),
    ] = None,
    frameworks: Annotated[
        str | None,
        typer.Option(
            metavar="torch,tf", help="The frameworks that the parts support; both by default."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder in which to create the package.")] = Path(),
) -> None:
    """Write a new plugin package. It contains working parts with tests, which you can change.

    For one part: rlcatalog new model acme-resnet. For several:
    rlcatalog new package acme-parts --with model,distribution,codec.
    """
    framework_names = _names_in(frameworks)
    kinds = _names_in(contents) or []
    files = package_files(kind, name, framework_names, kinds)
    folder = out / name
    write_package(folder, files)
    typer.echo(f"{folder}: {len(files)} files. README.md describes each file. Next:")
    supported = chosen_frameworks(kinds_of(kind, kinds), framework_names)
    install_first = preparation(supported)
    if install_first and not is_prepared(supported):
        typer.echo(f"  {install_first}")
    typer.echo(f"  cd {folder}")
    typer.echo(f'  pip install -e ".[{extras_of(supported)}]"')
    typer.echo("  pytest")


def _names_in(option: str | None) -> list[str] | None:
    """Return the names in an option's value, between its commas; None if it is not set."""
    if option is None:
        return None
    return [name.strip() for name in option.split(",")]
