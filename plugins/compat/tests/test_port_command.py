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


def section(output, title):
    """Return the lines of a section of the report, without their indents; none if it is missing."""
    lines = output.splitlines()
    if title not in lines:
        return []
    begin = lines.index(title) + 1
    end = lines.index("", begin) if "" in lines[begin:] else len(lines)
    return [line.strip() for line in lines[begin:end]]


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
    assert "1 file read, 1 to change; 0 places could not be ported." in output
    assert file_to_port.read_bytes() == before


def test_port_write_changes_files(file_to_port, capsys):
    before = file_to_port.read_bytes()

    status, output = run_port(capsys, file_to_port.parent, "--write")

    assert status == 0
    assert output == "1 file read, 1 changed; 0 places could not be ported.\n"
    assert file_to_port.read_bytes() == before.replace(b"import gym", b"import gymnasium as gym")


def test_port_after_write_has_nothing_to_change(file_to_port, capsys):
    run_port(capsys, file_to_port.parent, "--write")

    status, output = run_port(capsys, file_to_port.parent)

    assert status == 0
    assert output == "1 file read, 0 to change; 0 places could not be ported.\n"


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
    place, reason = section(output, "Not ported. Change these lines by hand:")[:2]
    assert place == f"{file}:1: from ray.rllib.models import Model"
    assert reason.startswith("the first model interface")


def test_port_fails_if_a_file_is_not_python_3(tmp_path, capsys):
    file = tmp_path / "b.py"
    file.write_text("print 'Python 2'\n")

    status, output = run_port(capsys, file)

    assert status == 1
    assert f"{file}: cannot be read as Python 3" in output
    assert "Change the lines above." in output


# --- the report -----------------------------------------------------------------------------------

MODEL = """\
from ray.rllib.models import ModelCatalog
from ray.rllib.models.torch.fcnet import FullyConnectedNetwork


class Net(FullyConnectedNetwork):
    pass


class Wide(Net):
    pass


ModelCatalog.register_custom_model("wide", Wide)
"""
ENVIRONMENT = """\
import gym


class Walk(gym.Env):
    def reset(self):
        self.time = 0
        return 0

    def step(self, action):
        self.time += 1
        return 0, 0.0, self.time >= 9, {}
"""
REGISTERED = ENVIRONMENT + '\n\ngym.register("Walk-v0", entry_point=Walk)\n'
SCRIPT = """\
import ray
from ray.rllib.agents.ppo import PPOTrainer

ray.init()
PPOTrainer(env="CartPole-v1").train()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes files into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)

    return write


def test_report_lists_what_runs_and_where(project, capsys):
    project(model=MODEL, walk=ENVIRONMENT, train=SCRIPT)

    _, output = run_port(capsys, ".", "--write")

    assert section(output, "Runs with rlcatalog now:") == [
        "model.py:5  model Net",
        "model.py:9  model Wide",
        "train.py:2  PPOTrainer: trains with rlcatalog's PPO or A2C, in this process",
        "walk.py:4   environment Walk: reset and step rewritten for Gymnasium",
    ]
    assert section(output, "No longer needs Ray:") == ["model.py", "train.py"]


def test_report_lists_what_to_look_at(project, capsys):
    project(walk=ENVIRONMENT)

    status, output = run_port(capsys, "walk.py")

    lines = section(output, "Ported, but look at these lines:")
    assert lines[0] == "walk.py:11: self.time >= 9"
    assert "truncated=True" in " ".join(lines)
    assert status == 0


def test_report_lists_no_part_of_a_file_that_is_not_ported(project, capsys):
    project(model="from ray.rllib.models import Model\n" + MODEL)

    _, output = run_port(capsys, "model.py", "--write")

    assert section(output, "Runs with rlcatalog now:") == []
    assert section(output, "No longer needs Ray:") == []


@pytest.mark.parametrize(
    ("files", "next_lines"),
    [
        pytest.param({"train": SCRIPT, "model": MODEL}, ["python train.py"], id="script"),
        pytest.param(
            {"walk": REGISTERED}, ["rlcatalog explain Walk-v0 --import walk"], id="environment"
        ),
        pytest.param(
            {"model": MODEL},
            ["rlcatalog explain ENV_ID --import model --model custom_model=wide"],
            id="model",
        ),
        pytest.param(
            {"walk": ENVIRONMENT},
            ["Import Walk from walk, and pass it to rlcatalog.build(env=Walk())."],
            id="class",
        ),
        pytest.param(
            {"model": "from ray.rllib.models import Model\n"},
            [
                "Change the lines above. Then run this command, which lists what is left:",
                "rlcatalog port .",
            ],
            id="not-ported",
        ),
    ],
)
def test_report_ends_with_the_next_command(project, capsys, files, next_lines):
    project(**files)

    _, output = run_port(capsys, ".")
    assert files.keys() == {"model"} or section(output, "Next:") == ["rlcatalog port . --write"]
    _, output = run_port(capsys, ".", "--write")

    assert section(output, "Next:") == next_lines


def test_next_command_enters_a_plain_folder(project, capsys, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old/model.py").write_text(MODEL)

    _, output = run_port(capsys, "old", "--write")

    assert section(output, "Next:") == [
        "cd old",
        "rlcatalog explain ENV_ID --import model --model custom_model=wide",
    ]


def test_report_fits_into_100_columns(project, capsys):
    long_step = ENVIRONMENT.replace("self.time >= 9", "self.time >= 9 * len('" + 90 * "x" + "')")
    project(walk=long_step, model="from ray.rllib.models import Model\n" + MODEL)

    _, output = run_port(capsys, ".", "--write")

    assert max(map(len, output.splitlines())) <= 100


# --- errors and progress --------------------------------------------------------------------------


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
