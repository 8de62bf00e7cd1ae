"""Hints at the modules that a run's own command imported."""

from __future__ import annotations

import json

import pytest

from rlcatalog.errors import CatalogError, UnknownNameError
from rlcatalog_runs.import_hints import hint_at_imports, imports_of_run


def write_record(folder, *command):
    """Write the record of a finished run that this command line trained."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"status": "finished", "command": ["rlcatalog", "train", *command]}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def raise_in_command(path, *, imported=(), message="Unknown model 'kite'."):
    """Return the message of an error in a command that imports these modules."""
    with pytest.raises(UnknownNameError) as caught, hint_at_imports(path, imported):
        raise UnknownNameError(message)
    return str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        ["--import", "kites", "--import", "kites.nets"],
        ["--import=kites", "--import=kites.nets"],
        ["--import", "kites", "--seed", "1", "--import=kites.nets", "--import", "kites"],
    ],
)
def test_imports_are_read_from_the_command_of_a_run(command, tmp_path):
    run = write_record(tmp_path / "run", "Kite-v0", *command)

    assert imports_of_run(run) == ["kites", "kites.nets"]


def test_hint_names_the_modules_to_import(tmp_path):
    run = write_record(tmp_path / "run", "Kite-v0", "--import", "kites")

    assert raise_in_command(run) == (
        "Unknown model 'kite'. The command that trained this run imported kites. If you trust"
        " kites, add --import kites."
    )


@pytest.mark.parametrize("inside", ["policy", "best", "checkpoints/step-000001024/policy"])
def test_hint_is_given_for_a_policy_in_a_run(inside, tmp_path):
    run = write_record(tmp_path / "run", "Kite-v0", "--import", "kites")

    assert "add --import kites" in raise_in_command(run / inside)


def test_hint_leaves_out_modules_that_are_imported(tmp_path):
    run = write_record(tmp_path / "run", "Kite-v0", "--import", "kites")

    assert raise_in_command(run, imported=["kites"]) == "Unknown model 'kite'."


def test_hint_is_not_given_twice(tmp_path):
    run = write_record(tmp_path / "run", "Kite-v0", "--import", "kites")
    message = "The module is not imported. If you trust it, pass --import kites."

    assert raise_in_command(run, message=message) == message


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["--import", "kites; rm -r /"], id="not-a-module"),
        pytest.param(["--import"], id="without-a-value"),
        pytest.param(["--important", "kites"], id="other-option"),
    ],
)
def test_hint_shows_names_of_modules_only(command, tmp_path):
    run = write_record(tmp_path / "run", *command)

    assert raise_in_command(run) == "Unknown model 'kite'."


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("{", id="not-json"),
        pytest.param('{"status": "finished"}', id="without-a-command"),
        pytest.param('{"status": "finished", "command": [1]}', id="no-words"),
    ],
)
def test_hint_needs_a_readable_record(record, tmp_path):
    (tmp_path / "run.json").write_text(record)

    assert raise_in_command(tmp_path) == "Unknown model 'kite'."


def test_hint_is_for_errors_of_rlcatalog(tmp_path):
    run = write_record(tmp_path / "run", "Kite-v0", "--import", "kites")

    with pytest.raises(ZeroDivisionError) as caught, hint_at_imports(run, ()):
        raise ZeroDivisionError("division")

    assert not isinstance(caught.value, CatalogError)
    assert str(caught.value) == "division"
