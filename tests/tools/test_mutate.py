"""The tool of `make mutate`: what it changes, and that it tells a mutant some test notices from one
that none does.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants run in forked processes")


@pytest.fixture
def mutants_of(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    from mutants import mutants_of

    return mutants_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a + b", {"a - b", "a", "b"}),
        ("a // b", {"a * b", "a", "b"}),
        ("a & b", {"a | b", "a", "b"}),
        ("a < b", {"a <= b", "a >= b"}),
        ("a == b", {"a != b"}),
        ("a and b", {"a or b", "a", "b"}),
        ("not a", {"a"}),
        ("~a", {"a"}),
        ("-a", {"a"}),
        ("a or {}", set()),
        ("f(a, axis=-1)", {"f(a, axis=1)", "f(a, axis=-2)"}),
        (
            "f(0, 1, 5, 2.5, 0.0)",
            {"f(1, 1, 5, 2.5, 0.0)", "f(0, 0, 5, 2.5, 0.0)", "f(0, 1, 6, 2.5, 0.0)"}
            | {"f(0, 1, 5, 5.0, 0.0)", "f(0, 1, 5, 2.5, 1.0)"},
        ),
        ("f(a, keepdims=True)", {"f(a, keepdims=False)"}),
        ("a[1:]", {"a[:]", "a[0:]"}),
        ("np.clip(a, b, c)", {"a"}),
        ("a.clamp(b, c)", {"a"}),
        ("a.detach()", {"a"}),
        ("np.where(a, b, c)", {"b", "c"}),
        ("b.where(a, c)", {"b", "c"}),
        ("min(a, b)", {"max(a, b)"}),
        ("a.sum(b)", {"a.mean(b)"}),
        ("b if a else c", {"b", "c", "b if not a else c"}),
        ("f'{a + b}'", set()),
        ("'text'", set()),
        ("isinstance(a, float | int)", set()),
    ],
)
def test_expression_becomes_each_of_its_neighbours(line, expected, mutants_of):
    source = f"def f(a, b, c):\n    return {line}\n"
    found = [
        ast.unparse(ast.parse(m.apply(source)).body[0].body[0].value)
        for m in mutants_of("m.py", source)
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("clip(a)", ["pass"]),
        ("a += b", ["a -= b", "a = b"]),
        ("if a: b = c", ["if not a:\n    b = c"]),
        ("super().__init__(a)", []),
        ("raise ValueError(a + 1)", []),
        ("warnings.warn(a + 1)", []),
        ("x: f(1) = a", []),
    ],
)
def test_statement_becomes_each_of_its_neighbours(body, expected, mutants_of):
    source = f"def f(a, b, c):\n    {body}\n"
    found = [
        ast.unparse(ast.parse(m.apply(source)).body[0].body[0]) for m in mutants_of("m.py", source)
    ]
    assert found == expected


def test_texts_and_declarations_are_not_mutated(mutants_of):
    source = (
        '"""1 + 1."""\n\nclass A:\n    """2 + 2."""\n\n    size: int = 3\n\n    def'
        " __repr__(self):\n        return 1\n"
    )
    assert mutants_of("m.py", source) == []


def test_mutants_have_unique_names_and_right_columns(
    mutants_of,
):
    source = "def f(a):\n    return g('σ², μ', a[0], a[0])\n"
    found = mutants_of("m.py", source)
    assert [m.change for m in found] == ["0 → 1", "0 → 1 #2"]
    assert [m.apply(source).splitlines()[1] for m in found] == [
        "    return g('σ², μ', a[(1)], a[0])",
        "    return g('σ², μ', a[0], a[(1)])",
    ]


def test_small_sample_is_drawn_from_all_files(mutants_of):
    from mutate import sample

    mutants = [
        mutant
        for i in range(40)
        for mutant in mutants_of(f"{i:02}.py", "def f(a):\n    return -a + 1\n")
    ]
    chosen = sample(mutants, 10, seed=0)
    assert len(chosen) == 10
    assert chosen == sample(mutants, 10, seed=0)
    assert max(mutant.path for mutant in chosen) > "20.py"
    assert len({mutant.path for mutant in sample(mutants, 100, seed=0)}) == 40


CODE = '''"""Areas."""

def area(width, height):
    if width < 0:
        width = -width
    return width * height

def ends(n):
    while n:
        n = 0
    return n

def unseen(width):
    return -width
'''
TEST = """import pytest
from toy_areas.areas import area, ends

def test_area():
    assert area(-3, 5) == 15
    assert area(0.5, 5) == 2.5

def test_ends():
    assert ends(7) == 0

def test_a_process_that_gets_this_path_finds_this_file():
    from importlib.machinery import PathFinder
    assert PathFinder.find_spec("toy")

@pytest.mark.skip
def test_that_is_skipped_says_nothing():
    assert area(1, 1) == 2
"""
EQUIVALENT = """[[mutant]]
inside = "area"
source = "width < 0"
change = "width < 0 → width <= 0"
why = "Minus zero is zero."

[[mutant]]
path = "toy/src/toy_areas/other.py"
change = "-width → width"
why = "Of another file."
"""


@pytest.fixture
def toy(tmp_path):
    """A repository with one package."""
    tree = tmp_path / "tree"
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n"
        "markers = ['learn: slow', 'slow: slow', 'grid: crossed', 'packaging: slow']\n",
        "toy/pyproject.toml": "",
        "toy/src/toy_areas/__init__.py": "",
        "toy/src/toy_areas/areas.py": CODE,
        "toy/src/toy_areas/never.py": "def never(a):\n    return -a\n",
        "toy/tests/test_areas.py": TEST,
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    return tree


#: Mutant → what becomes of it.
BECAME = {
    ("area", "width < 0 → width <= 0"): "equivalent",
    ("area", "width < 0 → width >= 0"): "killed",
    ("area", "0 → 1"): "killed",
    ("area", "-width → width"): "killed",
    ("area", "width * height → width / height"): "killed",
    ("area", "width * height → width"): "killed",
    ("area", "width * height → height"): "killed",
    ("ends", "n → not n"): "killed",
    ("ends", "0 → 1"): "timeout",
    ("unseen", "-width → width"): "survived",
    ("never", "-a → a"): "uncovered",
}


def mutate(tree, *options):
    """Run the tool on the toy package; return the process, and what became of each mutant."""
    report, equivalent = tree.with_name("report.json"), tree.with_name("equivalent.toml")
    report.unlink(missing_ok=True)
    equivalent.write_text(EQUIVALENT)
    program = (
        f"import sys; sys.path[0] = {str(TOOLS)!r}; import mutate; from pathlib import Path\n"
        "mutate.PRELOADED, mutate.PATIENCE, mutate.EQUIVALENT = (), 5.0,"
        f" Path({str(equivalent)!r})\nsys.exit(mutate.main())"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "toy",
        "--tree",
        str(tree),
        "--report",
        str(report),
        *options,
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    entries = json.loads(report.read_text()) if report.exists() else []
    return done, {(entry["inside"], entry["change"]): entry["became"] for entry in entries}


def test_sample_is_judged_and_named_by_its_seed(toy):
    done, became = mutate(toy, "--n", "4", "--seed", "31")
    assert done.returncode == 1, done.stdout + done.stderr
    assert became.items() <= BECAME.items()
    assert {*became.values()} == {"equivalent", "killed", "survived", "uncovered"}
    assert (toy / "toy/src/toy_areas/areas.py").read_text() == CODE


@pytest.mark.slow
def test_mutants_have_five_kinds_of_results(toy):
    done, became = mutate(toy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert became == BECAME
    assert (toy / "toy/src/toy_areas/areas.py").read_text() == CODE
    assert "| toy | 11 | 8 | 1 | 1 | 1 | 1 | 80.0 % |" in done.stdout


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("def test_wrong():\n    assert area(1, 1) == 2\n", "toy/tests/test_areas.py::test_wrong"),
        pytest.param(
            "import toy_areas.missing\n",
            "toy/tests/test_areas.py (status 2)",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["a test", "an import"],
)
def test_package_whose_tests_fail_is_not_judged(fault, name, toy):
    (toy / "toy/tests/test_areas.py").write_text(TEST + fault)
    done, became = mutate(toy)
    assert done.returncode == 1
    assert became == {}
    assert "1 tests fail before any mutation" in done.stderr
    assert name in done.stderr


@pytest.mark.slow
def test_mutants_of_a_report_are_found_after_edits(toy):
    mutants = [
        ("area", "width = -width", "-width → width", "killed"),
        ("unseen", "return -width", "-width → width", "survived"),
        ("gone", "return -width", "-width → width", "killed"),
    ]
    report = toy.with_name("earlier.json")
    path = "toy/src/toy_areas/areas.py"
    names = ("path", "inside", "source", "change", "became")
    report.write_text(
        json.dumps([dict(zip(names, (path, *mutant), strict=True)) for mutant in mutants])
    )
    (toy / path).write_text(CODE.replace('"""Areas."""\n', '"""Areas."""\n\nimport os\n'))

    done, became = mutate(toy, "--same", str(report))
    assert became == {
        ("area", "-width → width"): "killed",
        ("unseen", "-width → width"): "survived",
    }
    assert f"1 mutants of {report} are not in this code" in done.stdout

    done, became = mutate(toy, "--again", str(report))
    assert became == {("unseen", "-width → width"): "survived"}


def test_libraries_are_preloaded_in_a_safe_order(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    from mutate import PRELOADED

    assert PRELOADED.index("triton") < PRELOADED.index("tensorflow")


def test_some_packages_are_also_judged_by_shared_tests(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(TOOLS)
    from mutate import ELSEWHERE, Tree

    for name in ("catalog", "plugins/ppo"):
        (tmp_path / name / "src").mkdir(parents=True)
    folders = ("catalog/tests", "plugins/ppo/tests", "tests/models", "tests/docs")
    files = [f"{folder}/test_x.py" for folder in folders]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    tree = Tree(tmp_path, tmp_path / "copies", 1)
    assert tree.tests(Path("catalog")) == ["catalog/tests/test_x.py", "tests/models/test_x.py"]
    assert tree.tests(Path("plugins/ppo")) == ["plugins/ppo/tests/test_x.py"]
    for package, names in ELSEWHERE.items():
        assert all(
            (TOOLS.parent / package).is_dir() and (TOOLS.parent / "tests" / name).is_dir()
            for name in names
        )
