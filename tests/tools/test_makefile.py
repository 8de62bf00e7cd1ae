"""The verbs: `make` sets up with the Python that is there and says what it can do; the tools it
runs.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dist
import lowest
import public_index
import pytest
import quick

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = ROOT / "Makefile"

#: Stands for an interpreter of another version: it runs the program it is given under that
#: version's number.
INTERPRETER = """#!/bin/sh
[ "$1" = -c ] && exec {python} -c "import sys; sys.version_info = ({version}); $2"
echo "$0 $*"
"""
#: What a version manager leaves on the path for a version that is not installed.
SHIM = "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"
#: A system's Python whose venv is a package of its own.
NO_VENV = "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ensurepip'\" >&2\nexit 1\n"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def set_up(
    folder: Path, pythons: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Ask make for an environment, in an empty folder and with these commands alone on the path."""
    commands = folder / "bin"
    commands.mkdir()
    for tool in ("sh", "test", "echo"):
        found = shutil.which(tool)
        assert found is not None
        (commands / tool).symlink_to(found)
    for name, text in pythons.items():
        (commands / name).write_text(text, encoding="utf-8")
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


def python(version: tuple[int, int]) -> str:
    return INTERPRETER.format(python=sys.executable, version=f"{version[0]}, {version[1]}, 0")


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3.11": python((3, 11)), "python3.12": python((3, 12))}, "python3.11"),
        ({"python3.12": python((3, 12)), "python3.13": python((3, 13))}, "python3.12"),
        ({"python3.11": SHIM, "python3.12": SHIM, "python3.13": python((3, 13))}, "python3.13"),
        ({"python3.11": NO_VENV, "python3.12": python((3, 12))}, "python3.12"),
        ({"python3": python((3, 13))}, "python3"),
        ({"python3.14": python((3, 14)), "python3": python((3, 15))}, "python3.14"),
    ],
    ids=["oldest", "no-3.11", "shims", "no-venv", "plain-name", "3.15"],
)
def test_the_first_python_that_runs_is_taken(pythons, chosen, tmp_path):
    done = set_up(tmp_path, pythons)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{chosen} -m venv .venv"


@pytest.mark.parametrize(
    "pythons",
    [{}, {"python3": python((3, 10))}, {"python3": python((3, 15))}, {"python3.11": SHIM}],
    ids=["none", "3.10", "3.15", "a-shim"],
)
def test_without_one_make_says_what_to_do(pythons, tmp_path):
    done = set_up(tmp_path, pythons)
    assert done.returncode != 0
    assert "No Python 3.11 to 3.14" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_whoever_names_a_python_gets_that_one(tmp_path):
    mine = {"python3.11": python((3, 11)), "mine": python((3, 12))}
    assert set_up(tmp_path, mine, "PYTHON=mine").stdout.splitlines()[0] == "mine -m venv .venv"


# --- what the verbs say ---------------------------------------------------------------------------


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the repository's make."""
    return subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), f"PYTHON={sys.executable}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_lists_every_target():
    text = MAKEFILE.read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.M)
    listed = {line.split()[0]: line for line in make("help").stdout.splitlines()}
    assert list(listed) == re.findall(r"^([a-z][a-z-]*):.*##", text, re.M)
    assert set(listed) == set(phony.split())
    assert all(len(line.split()) > 2 for line in listed.values())


def test_the_pages_name_targets_there_are():
    """Every `make x` of the pages exists, and CONTRIBUTING names all verbs."""
    targets = {line.split()[0] for line in make("help").stdout.splitlines()}
    pages = {
        page: (ROOT / page).read_text(encoding="utf-8")
        for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    }
    said = {page: set(re.findall(r"`make ([a-z][a-z-]*)", text)) for page, text in pages.items()}
    assert set().union(*said.values()) <= targets
    assert said["CONTRIBUTING.md"] == targets - {"clean", "demo"}


@pytest.mark.parametrize(
    "folder", ["", "builtin_models", "builtin_models/nope", "tests", "catalog/tests", "fcnet"]
)
def test_one_package_is_a_package(folder):
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
def test_one_package_asks_for_what_it_needs(folder, environment, tmp_path):
    lines = make(
        "-n", "test-one", f"P={folder}", f"VENV={tmp_path}/venv", "PYTEST_ARGS="
    ).stdout.splitlines()
    installed = [line.split("-r ")[1] for line in lines if "pip install" in line]
    alone = ["requirements/without_dependencies.txt"] if environment == "dev" else []
    assert installed == ["requirements/build.txt", f"requirements/{environment}.txt", *alone]
    assert lines[-1].split(" -m pytest ")[1].split() == [
        "-m",
        '"not',
        "learn",
        "and",
        "not",
        'attack"',
        folder.rstrip("/"),
    ]


def test_the_first_target_is_the_demo():
    assert make("-n", "demo").stdout == make("-n").stdout


def test_the_first_screen_of_the_readme_has_the_two_commands_that_set_up_everything():
    """`tools/dist.py` runs the first of them in a bare clone."""
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45]
    assert [line.split("#")[0].split() for line in first_screen if line.startswith("$ make")] == [
        ["$", "make", "demo"],
        ["$", "make", "test"],
    ]
    for verb in ("demo", "test"):  # from no environment at all
        lines = make("-n", "-W", "Makefile", verb, "VENV=nowhere").stdout
        assert "-m venv nowhere" in lines


def test_the_release_runs_the_demo_from_a_bare_clone(repository, tmp_path, monkeypatch):
    clone = tmp_path / "new"
    (tmp_path / "Makefile").write_text(
        "demo:\n\tprintf '%s' \"$(STEPS) $(SEED)\" > made\n", encoding="utf-8"
    )
    repository("add", "Makefile")
    repository("commit", "--quiet", "-m", "second")
    (tmp_path / "not_committed").touch()
    monkeypatch.setattr(dist, "ROOT", tmp_path)
    monkeypatch.setenv("MAKEFLAGS", "SEED=7")  # of the `make dist` that runs it
    dist.clone_into(clone)
    dist.demo(clone)
    (made,) = clone.rglob("made")
    assert made.read_text(encoding="utf-8") == "2000 "
    assert not list(clone.rglob("not_committed"))


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
            ["tools/mutate.py", "tools/quick.py"],
            ["tests/tools/test_makefile.py", "tests/tools/test_mutate.py"],
        ),
        (["benchmarks/table.py"], ["tests/tools/test_bench_check.py"]),
    ],
)
def test_quick_runs_the_kernels_tests_and_those_of_what_changed(changed, expected):
    assert quick.folders(changed) == ["catalog/tests", *expected]
    assert all((ROOT / path).exists() for path in quick.ELSEWHERE.values())


def test_quick_runs_the_tests_that_use_a_changed_helper(tmp_path):
    for test, text in {
        "catalog/tests/test_masks.py": "import masked_env",  # runs anyhow
        "plugins/a/tests/test_one.py": "from masked_env import Env",
        "tests/test_two.py": "import masked_env",
        "tests/test_other.py": "import masked_env_too",
    }.items():
        (tmp_path / test).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / test).write_text(f"{text}\n", encoding="utf-8")
    changed = ["tests/support/masked_env.py"]
    expected = ["catalog/tests", "plugins/a/tests/test_one.py", "tests/test_two.py"]
    assert quick.folders(changed, tmp_path) == expected
    (tmp_path / "plugins/a/pyproject.toml").touch()
    expected[1] = "plugins/a/tests"
    assert quick.folders([*changed, "plugins/a/src/a.py"], tmp_path) == expected


@pytest.fixture
def repository(tmp_path):
    """A repository of git's with a branch; `repository("commit", …)` runs git in it."""
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


def test_quick_sees_what_is_not_committed_and_what_the_branch_did(repository, tmp_path):
    changed_files = quick.changed_files
    assert changed_files(tmp_path) == ([], "changed since the last commit")
    (tmp_path / "edited").write_text("other\n", encoding="utf-8")
    (tmp_path / "új fájl").touch()
    (tmp_path / "ignored").touch()
    assert changed_files(tmp_path) == (["edited", "új fájl"], "changed since the last commit")
    repository("switch", "--quiet", "-c", "branch")
    (tmp_path / "committed").write_text("other\n", encoding="utf-8")
    repository("mv", "moved", "to")
    repository("commit", "--quiet", "-m", "second", "committed", "moved", "to")
    found, since = changed_files(tmp_path)
    assert found == ["committed", "edited", "moved", "to", "új fájl"]
    assert since == "changed since the branch left main"


def test_quick_leaves_what_spans_packages_where_some_are_missing():
    chosen = ["catalog/tests", "plugins/ppo/tests", "tests/docs/test_docs.py"]
    assert quick.split(chosen, everything=True) == (chosen, [])
    assert quick.split(chosen, everything=False) == (chosen[:2], chosen[2:])


def test_quick_outside_of_git_runs_the_kernels(tmp_path):
    assert quick.changed_files(tmp_path) == ([], "git does not say what changed")


# --- lowest ---------------------------------------------------------------------------------------


def project(folder: Path, name: str, dependencies: list[str], **extras: list[str]) -> Path:
    folder.mkdir()
    path = folder / "pyproject.toml"
    lines = [
        f'[project]\nname = "{name}"\ndependencies ='
        f" {dependencies}\n[project.optional-dependencies]"
    ]
    path.write_text(
        "\n".join([*lines, *(f"{extra} = {wanted}" for extra, wanted in extras.items())]),
        encoding="utf-8",
    )
    return path


def test_lowest_takes_the_lowest_version_that_serves_all(tmp_path):
    first = project(
        tmp_path / "a",
        "a",
        ["numpy>=2,<3", "rich>=13.1, !=13.5", "b>=0.1"],
        torch=["torch>=2.8"],
        tf=["tf>=9"],
    )
    second = project(
        tmp_path / "b", "b", ["numpy>=2.1", "rich~=13.0", "typer==0.12"], torch=["a[torch]"]
    )
    assert lowest.lowest([first]) == {
        "b": "0.1",
        "numpy": "2",
        "rich": "13.1",
        "tf": "9",
        "torch": "2.8",
    }
    assert lowest.lowest([first, second]) == {
        "numpy": "2.1",
        "rich": "13.1",
        "tf": "9",
        "torch": "2.8",
        "typer": "0.12",
    }


def test_lowest_refuses_a_requirement_without_a_bound(tmp_path):
    with pytest.raises(SystemExit, match=r"pyproject\.toml: 'numpy<3' has no lower bound"):
        lowest.lowest([project(tmp_path / "a", "a", ["numpy<3"])])


def test_lowest_covers_every_package():
    lines = lowest.requirements().splitlines()
    folders = {line.removeprefix("-e ./") for line in lines if line.startswith("-e ")}
    on_disk = [*ROOT.glob("catalog/pyproject.toml"), *ROOT.glob("[bp]*/*/pyproject.toml")]
    names = {str(path.parent.relative_to(ROOT)) for path in on_disk}
    assert folders == names - {"plugins/example"}
    pinned = [line.partition("==")[0] for line in lines if "==" in line]
    assert {"torch", "tensorflow", "numpy", "ray[rllib]", "stable-baselines3"} <= set(pinned)
    assert "rlcatalog" not in pinned
    assert "pytest" in lines


def test_lowest_keeps_the_extras_of_a_requirement(tmp_path):
    path = project(tmp_path / "a", "a", ["ray[rllib]>=2.54"])
    assert lowest.lowest([path]) == {"ray[rllib]": "2.54"}


# --- generated files ------------------------------------------------------------------------------


def test_the_check_of_the_install_hints_finds_a_stale_file(tmp_path, monkeypatch, capsys):
    fresh = public_index.TARGET.read_text(encoding="utf-8")
    stale = tmp_path / "hints.json"
    stale.write_text(fresh.replace("rlcatalog-fcnet", "rlcatalog-fcnot", 1), encoding="utf-8")
    assert public_index.main(["--check"]) == 0
    monkeypatch.setattr(public_index, "FRAMEWORKS", ())
    monkeypatch.setattr(public_index, "TARGET", stale)
    monkeypatch.setattr(public_index, "data", lambda: json.loads(fresh))
    assert public_index.main(["--check"]) == 1
    assert capsys.readouterr().err.endswith("hints.json is stale: run `make generate`.\n")
    assert public_index.main([]) == 0
    assert stale.read_text(encoding="utf-8") == fresh
