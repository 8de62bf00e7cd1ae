"""The command `rlcatalog port`: what it prints, writes and reads."""

import pytest

from rlcatalog_cli import main
from rlcatalog_compat.codemod import commands


def run_port(capsys, *arguments):
    """Run `rlcatalog port`, and return its exit status and output."""
    try:
        main(["port", *map(str, arguments)])
        status = 0
    except SystemExit as end:
        status = end.code or 0
    return status, capsys.readouterr().out


@pytest.fixture
def file_to_port(tmp_path):
    """A file that is not in UTF-8, with Windows line ends, and without one at its end."""
    file = tmp_path / "a.py"
    file.write_bytes(b"# caf\xc3\xa9\r\nimport gym\r\n\r\nx = 1")
    return file


def test_port_shows_changes_and_writes_none(file_to_port, capsys):
    before = file_to_port.read_bytes()

    status, output = run_port(capsys, file_to_port.parent)

    assert status == 0
    assert "-import gym" in output
    assert "+import gymnasium as gym" in output
    assert "1 file to change; pass --write to change; 0 places could not be ported" in output
    assert file_to_port.read_bytes() == before


def test_port_write_changes_files(file_to_port, capsys):
    before = file_to_port.read_bytes()

    status, output = run_port(capsys, file_to_port.parent, "--write")

    assert status == 0
    assert output == "1 file changed; 0 places could not be ported\n"
    assert file_to_port.read_bytes() == before.replace(b"import gym", b"import gymnasium as gym")


def test_port_after_write_has_nothing_to_change(file_to_port, capsys):
    run_port(capsys, file_to_port.parent, "--write")

    status, output = run_port(capsys, file_to_port.parent)

    assert status == 0
    assert output == ("0 files to change; pass --write to change; 0 places could not be ported\n")


@pytest.mark.parametrize("name", [".venv/b.py", "c.txt"], ids=["hidden-folder", "text-file"])
def test_port_skips_hidden_folders_and_other_files(tmp_path, capsys, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("import gym\n")

    run_port(capsys, tmp_path, "--write")

    assert file.read_text() == "import gym\n"


def test_port_fails_if_lines_cannot_be_ported(tmp_path, capsys):
    file = tmp_path / "a.py"
    file.write_text("from ray.rllib.models import Model\n")

    status, output = run_port(capsys, file)

    assert status == 1
    assert f"{file}:1: from ray.rllib.models import Model: the first model interface" in output


def test_port_fails_if_a_file_is_not_python_3(tmp_path, capsys):
    file = tmp_path / "b.py"
    file.write_text("print 'Python 2'\n")

    status, output = run_port(capsys, file)

    assert status == 1
    assert f"{file}: cannot be read as Python 3" in output


def read_errors_of_port(capsys, path):
    """Run `rlcatalog port`, which exits, and return the lines of its error output."""
    with pytest.raises(SystemExit):
        main(["port", str(path)])
    return capsys.readouterr().err.splitlines()


def test_port_of_a_missing_path_is_an_error(tmp_path, capsys):
    lines = read_errors_of_port(capsys, tmp_path / "nowhere")

    assert any("expected a file or folder" in line for line in lines)


@pytest.fixture
def folder_of_three_files(tmp_path):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("x = 1\n")
    return tmp_path


def test_port_that_is_quick_shows_no_progress(folder_of_three_files, capsys):
    assert read_errors_of_port(capsys, folder_of_three_files) == []


def test_port_that_takes_long_shows_its_progress(folder_of_three_files, capsys, monkeypatch):
    monkeypatch.setattr(commands, "SECONDS", 0)  # so that every file counts as slow

    assert read_errors_of_port(capsys, folder_of_three_files) == [
        "read 0 of 3 files",
        "read 1 of 3 files",
        "read 2 of 3 files",
    ]
