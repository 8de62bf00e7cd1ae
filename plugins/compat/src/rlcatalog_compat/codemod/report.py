"""The report at the end of `rlcatalog port`."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlcatalog_compat.codemod.context import Note
from rlcatalog_compat.codemod.parts import Part, Parts

_WIDTH = 100


@dataclass
class FileReport:
    """What happened to a file.

    Attributes:
        path: The file.
        is_changed: Whether the command changes it.
        parts: What it contains; None if it cannot be read.
        notes: Pieces of code that could not be ported.
        checks: Pieces of code that were ported, but that a person should look at.
        environments: Name of an environment class → its methods that were rewritten.
        syntax_error: Why the file cannot be read as Python 3, or None.
    """

    path: Path
    is_changed: bool = False
    parts: Parts | None = None
    notes: Sequence[Note] = ()
    checks: Sequence[Note] = ()
    environments: dict[str, list[str]] = field(default_factory=dict)
    syntax_error: str | None = None

    @property
    def needs_hand(self) -> bool:
        """Whether a person must change the file."""
        return bool(self.notes) or self.syntax_error is not None


def report(files: Sequence[FileReport], arguments: Sequence[Path], written: bool) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        files: The files that were read.
        arguments: The paths on the command line.
        written: Whether the files were changed; otherwise the changes were only shown.
    """
    yield _counts(files, written)
    title = "Runs with rlcatalog now:"
    if not written and any(file.is_changed for file in files):
        title = "Runs with rlcatalog once the changes are written:"
    yield from _section(title, _parts_that_run(files))
    yield from _section("No longer needs Ray:", _without_ray(files))
    yield from _section("Not ported. Change these lines by hand:", _places(files, "notes"))
    yield from _section("Ported, but look at these lines:", _places(files, "checks"))
    yield from _section("Next:", _next_step(files, arguments, written))


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield a title and its indented lines, after an empty line; nothing without lines."""
    all_lines = list(lines)
    if not all_lines:
        return
    yield ""
    yield title
    for line in all_lines:
        yield f"  {line}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def _counts(files: Sequence[FileReport], written: bool) -> str:
    num_changed = sum(file.is_changed for file in files)
    num_left = sum(len(file.notes) + (file.syntax_error is not None) for file in files)
    action = "changed" if written else "to change"
    read = count(len(files), "file")
    return f"{read} read, {num_changed} {action}; {count(num_left, 'place')} could not be ported."


def _parts_that_run(files: Sequence[FileReport]) -> Iterator[str]:
    """Yield the parts of the files that no longer need a person."""
    rows: list[tuple[str, str]] = []
    for file in files:
        if file.parts is None or file.needs_hand:
            continue
        for part in file.parts.parts:
            rows.append((f"{file.path}:{part.line}", _describe(part, file.environments)))
    width = max((len(place) for place, _ in rows), default=0)
    for place, what in rows:
        yield f"{place.ljust(width)}  {what}"


def _describe(part: Part, environments: dict[str, list[str]]) -> str:
    if part.kind == "algorithm":
        return f"{part.name}: trains with rlcatalog's PPO or A2C, in this process"
    text = f"{part.kind} {part.name}"
    methods = environments.get(part.name)
    if methods:
        text += f": {' and '.join(methods)} rewritten for Gymnasium"
    return text


def _without_ray(files: Sequence[FileReport]) -> Iterator[str]:
    for file in files:
        if file.parts is not None and file.parts.imports_ray and not file.needs_hand:
            yield str(file.path)


def _places(files: Sequence[FileReport], kind: str) -> Iterator[str]:
    """Yield each place with its file and line, and the reason below it."""
    for file in files:
        if kind == "notes" and file.syntax_error is not None:
            yield f"{file.path}: cannot be read as Python 3"
            yield from _wrapped(file.syntax_error)
        notes = file.notes if kind == "notes" else file.checks
        for note in notes:
            what = " ".join(note.what.split())
            place = f"{file.path}:{note.line}: "
            # Behind a long path, the code may make the line longer than the others.
            width = max(60, _WIDTH - 2 - len(place))
            yield place + textwrap.shorten(what, width, placeholder=" …")
            yield from _wrapped(note.why)


def _wrapped(text: str) -> list[str]:
    sentence = text
    if not sentence.endswith("."):
        sentence += "."
    return textwrap.wrap(
        sentence,
        _WIDTH - 2,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _next_step(
    files: Sequence[FileReport], arguments: Sequence[Path], written: bool
) -> Iterator[str]:
    """Yield the next command, with a sentence if it needs one."""
    paths = " ".join(shlex.quote(str(path)) for path in arguments)
    is_changed = any(file.is_changed for file in files)
    if is_changed and not written:
        yield f"rlcatalog port {paths} --write"
    elif any(file.needs_hand for file in files):
        yield "Change the lines above. Then run this command, which lists what is left:"
        yield f"rlcatalog port {paths}"
    else:
        yield from _command_to_run(files)


def _command_to_run(files: Sequence[FileReport]) -> Iterator[str]:
    """Yield the command that runs what was ported: a script, an environment or a model."""
    for file in files:
        kinds = {part.kind for part in file.parts.parts} if file.parts else set()
        if "algorithm" in kinds:
            yield f"python {shlex.quote(str(file.path))}"
            return
    for file in files:
        if file.parts is not None and file.parts.env_ids:
            yield from _enter_folder_of(file.path)
            yield f"rlcatalog explain {file.parts.env_ids[0]} --import {_module_of(file.path)}"
            return
    for file in files:
        if file.parts is not None and file.parts.models:
            option = f"--model custom_model={file.parts.models[0]}"
            yield from _enter_folder_of(file.path)
            yield f"rlcatalog explain ENV_ID --import {_module_of(file.path)} {option}"
            return
    for file in files:
        for part in file.parts.parts if file.parts else ():
            module = _module_of(file.path)
            if part.kind == "environment":
                arguments = f"env={part.name}()"
            elif part.kind == "model":
                arguments = f"env=..., model={part.name}"
            else:
                continue
            yield (
                f"Import {part.name} from {module}, and pass it to rlcatalog.build({arguments})."
            )
            return


def _enter_folder_of(path: Path) -> Iterator[str]:
    """Yield the command that enters a file's folder, unless the file can be imported from here."""
    folder = path.parent
    if folder != Path() and not _is_in_package(path):
        yield f"cd {shlex.quote(str(folder))}"


def _module_of(path: Path) -> str:
    """Return the name under which a file can be imported from the current folder, or from its own
    folder if it is in no package; see `_enter_folder_of`.
    """
    if path.is_absolute() or not _is_in_package(path):
        return path.stem
    parts = path.with_suffix("").parts
    return ".".join(part for part in parts if part not in (".", "__init__"))


def _is_in_package(path: Path) -> bool:
    return (path.parent / "__init__.py").is_file()
