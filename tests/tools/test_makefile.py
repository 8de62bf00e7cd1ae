"""The Makefile: which Python sets up the environment, the targets, and the tools behind them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import dist
import lowest
import pytest
import quick

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = ROOT / "Makefile"

#: A script in place of an interpreter. It runs a program given by -c as if it had another version,
#: and prints any other command line.
INTERPRETER = """#!/bin/sh
[ "$1" = -c ] && exec {python} -c "import sys; sys.version_info = ({version}); $2"
echo "$0 $*"
"""
#: What a version manager leaves on the path for a version that is not installed.
SHIM = "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"
#: A system's Python whose venv is a package of its own.
NO_VENV = "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ensurepip'\" >&2\nexit 1\n"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def make_environment(
    folder: Path, *arguments: str, path: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run make for an environment in an empty folder.

    The path only contains what the Makefile's shell lines need, and the given commands: name →
    script.
    """
    commands = folder / "bin"
    commands.mkdir()
    for tool in ("sh", "test", "echo"):
        found = shutil.which(tool)
        assert found is not None
        (commands / tool).symlink_to(found)
    for name, script in path.items():
        (commands / name).write_text(script, encoding="utf-8")
        (commands / name).chmod(0o755)
    shutil.copy(MAKEFILE, folder / "Makefile")
    make = str(shutil.which("make"))
    return subprocess.run(
        [make, "--no-print-directory", *arguments, ".venv/bin/pip"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": str(commands)},
    )


def interpreter(minor: int) -> str:
    """Return a script in place of Python 3.minor."""
    return INTERPRETER.format(python=sys.executable, version=f"3, {minor}, 0")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ({"python3.11": interpreter(11), "python3.12": interpreter(12)}, "python3.11"),
        ({"python3.12": interpreter(12), "python3.13": interpreter(13)}, "python3.12"),
        ({"python3.11": SHIM, "python3.12": SHIM, "python3.13": interpreter(13)}, "python3.13"),
        ({"python3.11": NO_VENV, "python3.12": interpreter(12)}, "python3.12"),
        ({"python3": interpreter(13)}, "python3"),
        ({"python3.14": interpreter(14), "python3": interpreter(15)}, "python3.14"),
    ],
    ids=["oldest", "no 3.11", "shims", "no venv", "plain name", "3.15 is too new"],
)
def test_oldest_python_that_runs_makes_the_environment(path, expected, tmp_path):
    done = make_environment(tmp_path, path=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{expected} -m venv .venv"


@pytest.mark.parametrize(
    "path",
    [{}, {"python3": interpreter(10)}, {"python3": interpreter(15)}, {"python3.11": SHIM}],
    ids=["none", "3.10 is too old", "3.15 is too new", "shim"],
)
def test_missing_python_ends_with_advice(path, tmp_path):
    done = make_environment(tmp_path, path=path)
    assert done.returncode != 0
    assert "No Python 3.11 to 3.14" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_python_variable_chooses_the_interpreter(tmp_path):
    path = {"python3.11": interpreter(11), "mine": interpreter(12)}
    done = make_environment(tmp_path, "PYTHON=mine", path=path)
    assert done.stdout.splitlines()[0] == "mine -m venv .venv"


# --- targets --------------------------------------------------------------------------------------


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the repository's make."""
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), f"PYTHON={sys.executable}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def targets_in_help() -> list[str]:
    return [line.split()[0] for line in make("help").stdout.splitlines()]


def test_help_lists_every_target():
    text = MAKEFILE.read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.M)
    assert targets_in_help() == re.findall(r"^([a-z][a-z-]*):.*##", text, re.M)
    assert set(targets_in_help()) == set(phony.split())


def test_help_describes_every_target():
    for line in make("help").stdout.splitlines():
        target, *description = line.split()
        assert len(description) > 1, target


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_targets_named_on_pages_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"`make ([a-z][a-z-]*)", text)) <= set(targets_in_help())


def test_contributing_names_every_target_of_daily_work():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z][a-z-]*)", text))
    assert named == set(targets_in_help()) - {"clean", "demo"}


@pytest.mark.parametrize(
    "folder", ["", "builtin_models", "builtin_models/nope", "tests", "catalog/tests", "fcnet"]
)
def test_test_one_rejects_other_folders_than_packages(folder):
    done = make("-n", "test-one", f"P={folder}")
    assert done.returncode != 0
    assert f"P={folder} is no package of this repository" in done.stderr
    assert "builtin_models/fcnet" in done.stderr


@pytest.mark.parametrize(
    ("folder", "environment"),
    [
        ("catalog", "torch"),
        ("builtin_models/fcnet", "torch"),
        ("builtin_models/fcnet/", "torch"),
        ("plugins/example", "torch"),
        ("plugins/sb3", "dev"),
        ("plugins/rllib", "dev"),
    ],
)
def test_test_one_installs_what_the_package_needs(folder, environment, tmp_path):
    # An environment that does not exist, so everything has to be installed.
    done = make("-n", "test-one", f"P={folder}", f"VENV={tmp_path}/venv", "PYTEST_ARGS=")

    lines = done.stdout.splitlines()
    installed = [line.split("-r ")[1] for line in lines if "pip install" in line]
    expected = ["requirements/build.txt", f"requirements/{environment}.txt"]
    if environment == "dev":
        expected.append("requirements/without_dependencies.txt")
    assert installed == expected


@pytest.mark.parametrize("folder", ["catalog", "builtin_models/fcnet/"])
def test_test_one_runs_the_tests_of_the_folder(folder):
    last_line = make("-n", "test-one", f"P={folder}", "PYTEST_ARGS=").stdout.splitlines()[-1]
    command = last_line.partition(" -m pytest ")[2].rstrip()
    assert command == f'-m "not learn and not slow" {folder.rstrip("/")}'


def test_make_without_a_target_is_make_demo():
    assert make("-n").stdout == make("-n", "demo").stdout


def test_first_screen_of_readme_has_both_commands():
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45]
    commands = [line.split("#")[0].strip() for line in first_screen if line.startswith("$ make")]
    assert commands == ["$ make demo", "$ make test"]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_target_makes_the_environment_if_there_is_none(target):
    # -W: as if the Makefile had just been changed, because VENV only has a new name.
    lines = make("-n", "-W", "Makefile", target, "VENV=nowhere").stdout
    assert "-m venv nowhere" in lines


# --- release --------------------------------------------------------------------------------------


@pytest.fixture
def release_clone(repository, tmp_path, monkeypatch):
    """A clone for the release, of a repository whose `make demo` writes its variables to a file."""
    (tmp_path / "Makefile").write_text("demo:\n\tprintf '%s' \"$(STEPS) $(SEED)\" > made\n")
    repository("add", "Makefile")
    repository("commit", "--quiet", "-m", "second")
    (tmp_path / "not_committed").touch()
    monkeypatch.setattr(dist, "ROOT", tmp_path)
    clone = tmp_path / "clone"
    dist.clone_into(clone)
    return clone


def test_release_clone_contains_commits_alone(release_clone):
    assert list(release_clone.rglob("committed"))
    assert not list(release_clone.rglob("not_committed"))


def test_release_runs_the_demo_with_its_own_variables(release_clone, monkeypatch):
    monkeypatch.setenv("MAKEFLAGS", "SEED=7")  # as if `make dist SEED=7` ran the release
    dist.demo(release_clone)
    (made,) = release_clone.rglob("made")
    assert made.read_text(encoding="utf-8") == "2000 "  # STEPS, and no SEED


# --- quick ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        (["catalog/src/rlcatalog/models/views.py"], []),
        (["builtin_models/fcnet/src/rlcatalog_fcnet/torch.py"], ["builtin_models/fcnet/tests"]),
        (
            ["builtin_models/fcnet/tests/test_gone.py", "builtin_models/fcnet/README.md"],
            ["builtin_models/fcnet/tests"],
        ),
        (
            ["plugins/ppo/pyproject.toml", "builtin_dists/bounded/x"],
            ["builtin_dists/bounded/tests", "plugins/ppo/tests"],
        ),
        (["plugins/gone/src/x.py", "tests/test_gone.py", "LICENSE", "conftest.py"], []),
        (
            ["tests/memory/test_views.py", "tests/learning/test_learn_models.json"],
            ["tests/learning/test_learn_models.py", "tests/memory/test_views.py"],
        ),
        (
            ["docs/config.md", "README.md"],
            ["tests/docs/test_docs.py", "tests/docs/test_docs_config.py"],
        ),
        (
            ["tools/quick.py", "tools/test_homes.py"],
            ["tests/tools/test_makefile.py", "tests/tools/test_test_homes.py"],
        ),
        (["benchmarks/table.py"], ["tests/tools/test_bench_check.py"]),
    ],
)
def test_quick_runs_tests_of_the_kernel_and_of_changed_files(changed, expected):
    assert quick.folders(changed) == ["catalog/tests", *expected]


def test_quick_knows_existing_tests_of_shared_files():
    for path in quick.ELSEWHERE.values():
        assert (ROOT / path).exists()


@pytest.fixture
def checkout_with_helper(tmp_path):
    """A checkout with three tests that import the helper `masked_env`, and one that does not."""
    for test, text in {
        "catalog/tests/test_masks.py": "import masked_env",
        "plugins/a/tests/test_one.py": "from masked_env import Env",
        "tests/test_two.py": "import masked_env",
        "tests/test_other.py": "import masked_env_too",
    }.items():
        (tmp_path / test).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / test).write_text(f"{text}\n", encoding="utf-8")
    (tmp_path / "plugins/a/pyproject.toml").touch()
    return tmp_path


def test_quick_runs_tests_that_import_a_changed_helper(checkout_with_helper):
    changed = ["tests/support/masked_env.py"]
    assert quick.folders(changed, checkout_with_helper) == [
        "catalog/tests",  # always runs, with test_masks.py
        "plugins/a/tests/test_one.py",
        "tests/test_two.py",
    ]


def test_quick_runs_no_file_beside_its_whole_folder(checkout_with_helper):
    changed = ["tests/support/masked_env.py", "plugins/a/src/a.py"]
    assert quick.folders(changed, checkout_with_helper) == [
        "catalog/tests",
        "plugins/a/tests",
        "tests/test_two.py",
    ]


@pytest.fixture
def repository(tmp_path):
    """A git repository with one commit; `repository("commit", …)` runs git in it."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    for name in ("kept", "edited", "moved", "committed"):
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("ignored\n", encoding="utf-8")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return git


def test_clean_main_has_no_changed_files(repository, tmp_path):
    assert quick.changed_files(tmp_path) == ([], "changed since the last commit")


def test_changed_files_include_those_not_committed(repository, tmp_path):
    (tmp_path / "edited").write_text("other\n", encoding="utf-8")
    (tmp_path / "új fájl").touch()
    (tmp_path / "ignored").touch()
    files, since = quick.changed_files(tmp_path)
    assert files == ["edited", "új fájl"]
    assert since == "changed since the last commit"


def test_changed_files_include_commits_of_the_branch(repository, tmp_path):
    git = repository
    git("switch", "--quiet", "-c", "branch")
    (tmp_path / "committed").write_text("other\n", encoding="utf-8")
    git("mv", "moved", "to")
    git("commit", "--quiet", "-m", "second", "committed", "moved", "to")
    # This change is not committed.
    (tmp_path / "edited").write_text("other\n", encoding="utf-8")

    files, since = quick.changed_files(tmp_path)

    # A moved file counts with its old and its new name.
    assert files == ["committed", "edited", "moved", "to"]
    assert since == "changed since the branch left main"


def test_changed_files_outside_of_git_are_unknown(tmp_path):
    assert quick.changed_files(tmp_path) == ([], "git does not say what changed")


@pytest.mark.parametrize("has_all_packages", [True, False])
def test_quick_leaves_out_tests_of_missing_packages(has_all_packages):
    of_packages = ["catalog/tests", "plugins/ppo/tests"]
    of_pages = ["tests/docs/test_docs.py"]
    run, left_out = quick.split(of_packages + of_pages, everything=has_all_packages)
    if has_all_packages:
        assert (run, left_out) == (of_packages + of_pages, [])
    else:
        assert (run, left_out) == (of_packages, of_pages)


# --- lowest ---------------------------------------------------------------------------------------


def write_project(folder: Path, name: str, dependencies: list[str], **extras: list[str]) -> Path:
    """Write the pyproject.toml of a package, and return its path."""
    folder.mkdir()
    lines = ["[project]", f'name = "{name}"', f"dependencies = {dependencies}"]
    lines.append("[project.optional-dependencies]")
    for extra, requirements in extras.items():
        lines.append(f"{extra} = {requirements}")
    path = folder / "pyproject.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_lowest_takes_lower_bounds_of_dependencies_and_extras(tmp_path):
    dependencies = ["numpy>=2,<3", "rich>=13.1, !=13.5", "typer==0.12"]
    path = write_project(tmp_path / "a", "a", dependencies, torch=["torch>=2.8"], tf=["tf>=9"])
    assert lowest.lowest([path]) == {
        "numpy": "2",
        "rich": "13.1",
        "tf": "9",
        "torch": "2.8",
        "typer": "0.12",
    }


def test_lowest_takes_the_highest_of_several_lower_bounds(tmp_path):
    paths = [
        write_project(tmp_path / "a", "a", ["numpy>=2,<3", "rich>=13.1"]),
        write_project(tmp_path / "b", "b", ["numpy>=2.1", "rich~=13.0"]),
    ]
    assert lowest.lowest(paths) == {"numpy": "2.1", "rich": "13.1"}


def test_lowest_leaves_out_the_projects_themselves(tmp_path):
    paths = [
        write_project(tmp_path / "a", "a", ["b>=0.1"]),
        write_project(tmp_path / "b", "b", [], torch=["a[torch]"]),
    ]
    assert lowest.lowest(paths[:1]) == {"b": "0.1"}
    assert lowest.lowest(paths) == {}


def test_lowest_keeps_the_extras_of_a_requirement(tmp_path):
    path = write_project(tmp_path / "a", "a", ["ray[rllib]>=2.54"])
    assert lowest.lowest([path]) == {"ray[rllib]": "2.54"}


def test_lowest_rejects_a_requirement_without_lower_bound(tmp_path):
    path = write_project(tmp_path / "a", "a", ["numpy<3"])
    with pytest.raises(SystemExit, match=r"toml: 'numpy<3' has no lower bound"):
        lowest.lowest([path])


def test_lowest_requirements_install_the_packages():
    lines = lowest.requirements().splitlines()
    installed = {line.removeprefix("-e ./") for line in lines if line.startswith("-e ")}

    projects = [*ROOT.glob("catalog/pyproject.toml"), *ROOT.glob("[bp]*/*/pyproject.toml")]
    folders = {str(path.parent.relative_to(ROOT)) for path in projects}
    assert installed == folders - {f"plugins/{name}" for name in lowest.LEFT_OUT}


def test_lowest_requirements_pin_other_libraries():
    lines = lowest.requirements().splitlines()
    pinned = [line.partition("==")[0] for line in lines if "==" in line]
    assert {"torch", "tensorflow", "numpy", "ray[rllib]", "stable-baselines3"} <= set(pinned)
    assert "rlcatalog" not in pinned
    assert "pytest" in lines
