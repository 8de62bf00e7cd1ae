"""Hints at the modules that a run's own command imported.

rlcatalog imports no module because a file names it, so a command that uses a run needs `--import`
again. If it lacks that, its error names something that the module would have registered, such as a
model, and not the module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlcatalog.errors import CatalogError, SavedPolicyError
from rlcatalog_runs.records import RECORD, read_record

_OPTION = "--import"
#: A policy in a checkpoint is three folders below its run: `RUN/checkpoints/step-000001024/policy`.
_MOST_PARENTS = 3


@contextmanager
def hint_at_imports(path: Path, imported: Collection[str]) -> Iterator[None]:
    """Context manager that adds a hint to errors, if the command of a run imported modules that the
    present one does not.

    Args:
        path: The run's folder, or a folder in it, such as the one of its policy.
        imported: The modules that the present command imports.

    Raises:
        CatalogError: An error of the block, with the hint.
    """
    try:
        yield
    except CatalogError as error:
        message = str(error)
        missing = []
        for module in imports_of_run(path):
            is_named_already = f"{_OPTION} {module}" in message
            if module not in imported and not is_named_already:
                missing.append(module)
        if missing:
            names = " and ".join(missing)
            options = " ".join(f"{_OPTION} {module}" for module in missing)
            hint = (
                f"The command that trained this run imported {names}. If you trust {names}, add"
                f" {options}."
            )
            error.args = (f"{message} {hint}", *error.args[1:])
        raise


def imports_of_run(path: Path) -> list[str]:
    """Return the modules that a run's own command imported; empty without a readable record.

    Args:
        path: The run's folder, or a folder in it.
    """
    folder = _folder_of_run(path)
    if folder is None:
        return []
    try:
        record = read_record(folder)
    except (SavedPolicyError, OSError):  # the record is damaged
        return []
    if record is None:
        return []
    return _imports_in_command(record.get("command"))


def _folder_of_run(path: Path) -> Path | None:
    """Return the folder of the run that a path is in, or None."""
    parents = list(path.parents)[:_MOST_PARENTS]
    for folder in (path, *parents):
        if (folder / RECORD).is_file():
            return folder
    return None


def _imports_in_command(command: Any) -> list[str]:
    """Return the modules that a command line imports, if it has the form of one.

    The file may come from someone else, so anything but a module's name is left out.
    """
    if not isinstance(command, Sequence) or not all(isinstance(word, str) for word in command):
        return []
    modules: dict[str, None] = {}  # each once, in this order
    for word, next_word in pairwise([*command, ""]):
        option, equals, value = word.partition("=")
        if option != _OPTION:
            continue
        module = value if equals else next_word
        if all(name.isidentifier() for name in module.split(".")):
            modules[module] = None
    return list(modules)
