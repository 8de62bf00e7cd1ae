"""`tools/house.py`: its figures, on checkouts small enough to count by hand."""

from __future__ import annotations

import ast
import subprocess
from pathlib import PurePosixPath

import pytest
from house import report
from house_calls import count
from house_clarity import (
    count_constructs,
    find_complex_functions,
    find_long_functions,
    measure_clarity,
)
from house_code import (
    Source,
    compare,
    count_lines,
    find_untyped_types,
    read_commit,
    read_sources,
    share_untyped,
)
from house_imports import Imports
from house_peers import read_peers, write_peers
from house_table import Row, format_table

#: Path → text. Code lines: 14 in the kernel (errors.py 2, info.py 10, catalog.py 2) and 11 in
#: plugins.
FILES = {
    "pyproject.toml": """
[[tool.importlinter.contracts]]
id = "rooms"
layers = ["catalog", "spaces | errors"]
""",
    "catalog/src/rlcatalog/__init__.py": '"""The top."""\n',
    "catalog/src/rlcatalog/errors.py": "class CatalogError(Exception):\n    pass\n",
    "catalog/src/rlcatalog/spaces/__init__.py": "",
    "catalog/src/rlcatalog/spaces/__init__.pyi": """
from .info import SpaceInfo as SpaceInfo, unused as unused
""",
    "catalog/src/rlcatalog/spaces/info.py": '''
"""What a space is."""

from typing import Any

Anything = Any
TARGET = "rlcatalog.catalog.catalog:Catalog"


class SpaceInfo:  # public
    """Ten lines of code in this file."""

    def read(self, space: Any, name: str, other: Anything, *rest: Any) -> None:
        # a comment
        text = """not
        a docstring"""


class _Private:
    pass


def unused(count: int): ...
''',
    "catalog/src/rlcatalog/catalog/__init__.py": "",
    "catalog/src/rlcatalog/catalog/__init__.pyi": """
from .catalog import Catalog as Catalog
""",
    "catalog/src/rlcatalog/catalog/catalog.py": """
def f():
    from rlcatalog.spaces import SpaceInfo
""",
    "plugins/sb3/src/rlcatalog_sb3/plugin.py": """
import rlcatalog_ppo.rollout
TARGET = "rlcatalog_sb3.net:Net"
""",
    "plugins/sb3/src/rlcatalog_sb3/net.py": """
import rlcatalog_sb3.plugin
from rlcatalog.spaces import SpaceInfo
""",
    "plugins/ppo/src/rlcatalog_ppo/rollout.py": """
def step():
    return 1
""",
    "plugins/ppo/src/rlcatalog_ppo/torch.py": """
import rlcatalog_sb3.net
import rlcatalog_torch.nn
""",
    "plugins/torch/src/rlcatalog_torch/__init__.py": "",
    "plugins/torch/src/rlcatalog_torch/__init__.pyi": """
from .backend import act as act
""",
    "plugins/torch/src/rlcatalog_torch/backend.py": """
def act(d):
    return d.sample() or d.deterministic_sample()
""",
    "plugins/torch/src/rlcatalog_torch/nn.py": "x = 1\n",
}
#: A function that takes a policy from inputs to an action, as `act` in backend.py.
ACTING_STEP = """
def choose(d):
    return d.sample() or d.deterministic_sample()
"""


def write_files(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read_text(text, *, path="module.py"):
    return Source(PurePosixPath(path), text)


@pytest.fixture
def checkout(tmp_path):
    write_files(tmp_path, FILES)
    return tmp_path


def figures(checkout, *, since=None):
    return {row.measure: row.figure for row in report(checkout, since)}


def places(checkout):
    return {row.measure: list(row.places) for row in report(checkout)}


def commit_all(checkout):
    def git(*arguments):
        subprocess.run(["git", "-C", checkout, *arguments], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "before")


def test_code_lines_leave_out_comments_docstrings_and_blanks(checkout):
    by_name = {str(source.path): len(source.code_lines()) for source in read_sources(checkout)}
    assert by_name["catalog/src/rlcatalog/spaces/info.py"] == 10
    assert by_name["catalog/src/rlcatalog/__init__.py"] == 0
    assert figures(checkout)["code lines of the kernel"] == "14"
    assert figures(checkout)["code lines of all packages"] == "25"


def test_kernel_sizes_have_no_goal(checkout):
    rows = {row.measure: row for row in report(checkout)}
    assert rows["files of the kernel"] == Row("files of the kernel", "6")
    # SpaceInfo; CatalogError is an error and _Private is private.
    assert rows["classes of the kernel, without errors"].figure == "1"
    assert not rows["code lines of the kernel"].goal
    assert not rows["names at the kernel's doors"].goal


def test_names_at_doors_are_counted(checkout):
    counted = figures(checkout)
    assert counted["names at the kernel's doors"] == "3"  # SpaceInfo, unused, Catalog
    # And `act` of rlcatalog_torch.
    assert counted["names at the doors of kernel and library packages"] == "4"


def test_names_at_doors_are_used_by_packages_or_pages(checkout):
    measure = "names at the kernel's doors that no package or page uses"
    # rlcatalog_sb3 imports SpaceInfo.
    assert places(checkout)[measure] == ["rlcatalog.catalog.Catalog", "rlcatalog.spaces.unused"]

    write_files(checkout, {"docs/page.md": "An unused word.\n\n```python\nCatalog()\n```\n"})

    assert places(checkout)[measure] == ["rlcatalog.spaces.unused"]  # prose is no use


def test_names_of_frameworks_are_counted_in_code_alone(checkout):
    code = 'import torch.nn\nX = {"tf": torch, "use torch": 1}  # tf\n'
    write_files(checkout, {"catalog/src/rlcatalog/spaces/names.py": f'"""Of torch."""\n{code}'})
    # The import, "tf" and torch.
    assert figures(checkout)["names of frameworks in the kernel"] == "3"


def test_imports_by_string_and_through_doors_are_seen(checkout):
    imports = Imports(checkout, read_sources(checkout))
    # A target that plugin.py declares closes no cycle with the file it names.
    assert imports.cycles() == [["rlcatalog.catalog.catalog", "rlcatalog.spaces.info"]]
    assert imports.upward() == ["rlcatalog.spaces.info -> rlcatalog.catalog.catalog"]


def test_arrows_beside_the_table_are_named(checkout):
    imports = Imports(checkout, read_sources(checkout))
    assert imports.arrows() == [
        # It may also import rlcatalog_torch.nn, because the file is called torch.
        "rlcatalog_ppo.torch -> rlcatalog_sb3.net",
        "rlcatalog_sb3.plugin -> rlcatalog_ppo.rollout",
    ]


def test_imports_for_type_checkers_are_counted_apart(checkout):
    upward_import = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
"""
    import_of_loss = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import rlcatalog_ppo.update
"""
    write_files(
        checkout,
        {
            "catalog/src/rlcatalog/errors.py": upward_import,
            # These two files import each other.
            "plugins/ppo/src/rlcatalog_ppo/rollout.py": import_of_loss,
            "plugins/ppo/src/rlcatalog_ppo/update.py": "import rlcatalog_ppo.rollout",
        },
    )

    counts = figures(checkout)

    # The checkout had one upward import and one cycle before.
    assert counts["imports upward"] == "1"
    assert counts["import cycles"] == "1"
    assert counts["import cycles, imports for type checkers included"] == "2"
    assert places(checkout)["imports for type checkers, upward or beside the table"] == [
        "rlcatalog.errors -> rlcatalog.catalog.catalog"
    ]


def test_acting_steps_are_counted_per_framework(checkout):
    assert figures(checkout)["copies of the acting step in torch"] == "1"
    assert figures(checkout)["copies of the acting step in tf"] == "0"

    write_files(checkout, {"plugins/ppo/src/rlcatalog_ppo/torch.py": ACTING_STEP})

    assert places(checkout)["copies of the acting step in torch"] == [
        "plugins/ppo/src/rlcatalog_ppo/torch.py:2 choose",
        "plugins/torch/src/rlcatalog_torch/backend.py:2 act",
    ]


def test_constructs_are_counted_by_syntax():
    code = """
'A docstring, which is no statement.'
a, b = 1, 2  # a tuple assignment
c, d = pair  # unpacks one value
pair = 1, 2  # one name
e = 1 if a else 2 if b else 3  # two conditional expressions, one inside the other
e = 1 if a else 2
f = [x for x in range(3)]
g = lambda: (h := 1)
...
"""
    assert count_constructs(ast.parse(code)) == {
        "statements": 7,  # the assignments
        "tuple assignments": 1,
        "conditional expressions": 3,
        "nested conditional expressions": 1,
        "comprehensions": 1,
        "lambdas": 1,
        "walrus assignments": 1,
    }


def test_density_is_given_per_1000_statements(tmp_path):
    code = "a = 1\nb = {x for x in a}\nc = 1\nd = 1\ne = 1\n"
    write_files(tmp_path, {"module.py": code})

    rows = {row.measure: row for row in measure_clarity(tmp_path, [read_text(code)])}

    assert rows["statements of all packages"].figure == "5"
    assert rows["comprehensions per 1,000 statements"].figure == "200.0"  # 1 of 5
    assert rows["comprehensions per 1,000 statements"].goal == "at most 40"
    assert rows["walrus assignments per 1,000 statements"].figure == "0.0"


def test_complex_functions_have_a_complexity_over_12(tmp_path):
    branch = "    if x: pass\n"
    at_limit = "def at_limit(x):\n" + 11 * branch  # 12 lines, complexity 1 + 11
    over = "def over(x):  # noqa: C901\n" + 12 * branch
    write_files(tmp_path, {"module.py": at_limit + over})

    functions = find_complex_functions(tmp_path, [read_text(at_limit + over)])

    assert functions == ["module.py:13 `over` is too complex (13 > 12)"]


def test_long_functions_have_over_60_code_lines():
    at_limit = "def at_limit():\n" + 59 * "    x = 1\n"
    over = "def over():\n    # a comment\n" + 60 * "    x = 1\n"
    longer = "def longer():\n" + 70 * "    x = 1\n"
    source = read_text(at_limit + over + longer)
    assert find_long_functions([source]) == [
        "module.py:123 longer, 71 code lines",  # after 60 and 62 lines
        "module.py:61 over, 61 code lines",
    ]


def test_untyped_parameters_are_any_object_and_aliases(checkout):
    info = next(source for source in read_sources(checkout) if source.path.name == "info.py")
    # `space` and `other`, of `space`, `name`, `other` and `count`.
    assert share_untyped([info], find_untyped_types([info])) == 2 / 4


def test_untyped_parameters_include_those_without_a_type():
    source = read_text("def f(self, a, b: typing.Any, c: int, d: dict[str, typing.Any]): ...")
    assert share_untyped([source], find_untyped_types([source])) == 2 / 4  # a and b


def test_untyped_parameters_are_given_per_package(checkout):
    # `Anything` is another name of Any, which the kernel defines.
    code = "from rlcatalog.spaces.info import Anything\ndef f(a: Anything, b: int, c: int): ..."
    write_files(checkout, {"plugins/sb3/src/rlcatalog_sb3/net.py": code})

    counts = figures(checkout)

    assert counts["untyped parameters of rlcatalog_sb3"] == "33.3%"  # `a` of three
    assert counts["untyped parameters of rlcatalog_torch"] == "100.0%"  # `d` of `act`
    assert counts["untyped parameters of rlcatalog"] == "50.0%"
    assert counts["untyped parameters of rlcatalog_ppo"] == "0.0%"  # it has no parameters


def test_format_skips_are_comments():
    source = read_text('x = [1]  # fmt: skip\ny = "# fmt: skip"\n')
    assert source.format_skips() == 1


def test_compare_tells_moved_lines_from_removed_ones(checkout):
    commit_all(checkout)
    before = read_commit(checkout, "HEAD")
    assert count_lines(before) == count_lines(read_sources(checkout)) == 25
    (checkout / "catalog/src/rlcatalog/catalog/catalog.py").rename(
        checkout / "plugins/torch/src/rlcatalog_torch/catalog.py"
    )
    write_files(checkout, {"plugins/ppo/src/rlcatalog_ppo/rollout.py": "x = 2\n"})
    assert compare(before, read_sources(checkout)) == {"moved": 2, "deleted": 2, "added": 1}
    assert read_commit(checkout, "no-such-commit") is None


def test_changes_since_a_commit_count_statements(checkout):
    commit_all(checkout)
    # Two statements on one line take the place of `x = 1`.
    write_files(checkout, {"plugins/torch/src/rlcatalog_torch/nn.py": "x = 2; y = 3\n"})

    counts = figures(checkout, since="HEAD")

    assert counts["statements added since HEAD"] == "+1"
    assert counts["code lines added since HEAD"] == "1"
    assert counts["code lines deleted since HEAD"] == "1"


def test_changes_since_an_unknown_commit_have_a_row(checkout):
    assert figures(checkout, since="no-such-commit")["since no-such-commit"]


def test_table_aligns_columns_and_lists_places():
    rows = [Row("long functions", "2", "0", ["f", "g"]), Row("lines", "1,000")]
    peers = {"pluggy 1.0": {"long functions": "1"}, "SB3 2.0": {"lines": "20"}}
    assert format_table(rows, peers).splitlines() == [
        "measure         rlcatalog  goal  pluggy 1.0  SB3 2.0",
        "long functions          2  0              1",
        "lines               1,000                         20",
        "",
        "long functions:",
        "  f",
        "  g",
    ]


@pytest.fixture
def installed(tmp_path):
    """Return a folder with three small libraries, as pip installs them."""
    folder = tmp_path / "installed"
    versions = {"pluggy": "1.0", "stable_baselines3": "2.0", "httpx": "3.0"}
    for name, version in versions.items():
        metadata = f"{name}-{version}.dist-info"
        write_files(
            folder,
            {
                f"{name}/core.py": "x = 1\nf = lambda: 2\n",
                f"{metadata}/METADATA": f"Name: {name}\nVersion: {version}\n",
                f"{metadata}/RECORD": f"{name}/core.py,,\n{metadata}/METADATA,,\n",
            },
        )
    return folder


def test_peers_are_measured_by_version(installed, tmp_path):
    file = tmp_path / "peers.json"

    write_peers(installed, file)

    peers = read_peers(file)
    assert list(peers) == ["pluggy 1.0", "SB3 2.0", "httpx 3.0"]
    assert peers["SB3 2.0"]["statements of all packages"] == "2"
    assert peers["SB3 2.0"]["lambdas per 1,000 statements"] == "500.0"


def test_peers_that_are_not_installed_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not contain pluggy"):
        write_peers(tmp_path, tmp_path / "peers.json")


def test_peer_figures_have_a_row_in_the_table(checkout):
    measures = {row.measure for row in report(checkout)}
    kept = read_peers()
    assert len(kept) == 3
    assert {measure for peer in kept.values() for measure in peer} <= measures


def test_calls_of_functions_in_src_are_counted(tmp_path):
    code = """
def outer():
    for i in range(3):
        inner()
    return list(generate())

def inner():
    return (lambda: 1)()

def generate():
    yield 1
    yield 2
"""
    path = tmp_path / "src/module.py"
    path.parent.mkdir()
    path.write_text(code, encoding="utf-8")
    namespace: dict = {}
    exec(compile(code, str(path), "exec"), namespace)

    counts = count(tmp_path, namespace["outer"])

    # outer, three times inner, and generate, which counts once. A lambda is not counted.
    assert counts["calls"] == 1 + 3 + 1
    assert counts["depth"] == 3  # outer, inner, the lambda


def test_calls_are_not_counted_without_an_environment(checkout):
    assert figures(checkout)["calls and depth"].startswith("not counted")
