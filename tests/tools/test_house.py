"""`tools/house.py`: its figures, on a checkout small enough to count by hand."""

from __future__ import annotations

import subprocess

import pytest
from house import report
from house_calls import count
from house_code import compare, count_lines, read_commit, read_sources, share_untyped
from house_imports import Imports

FILES = {
    "pyproject.toml": """
[[tool.importlinter.contracts]]
id = "rooms"
layers = ["catalog", "policy", "torch", "spaces | errors"]
""",
    "catalog/src/rlcatalog/__init__.py": '"""The top."""\n',
    "catalog/src/rlcatalog/errors.py": "class CatalogError(Exception):\n    pass\n",
    "catalog/src/rlcatalog/spaces/__init__.py": "",
    "catalog/src/rlcatalog/spaces/__init__.pyi": "from .info import SpaceInfo as SpaceInfo, unused"
    " as unused\n",
    "catalog/src/rlcatalog/spaces/info.py": '''
"""What a space is."""

from typing import Any

Anything = Any
TARGET = "rlcatalog.policy.policy:Policy"


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
    "catalog/src/rlcatalog/policy/__init__.py": "",
    "catalog/src/rlcatalog/policy/__init__.pyi": "from .policy import Policy as Policy\n",
    "catalog/src/rlcatalog/policy/policy.py": "def f():\n    from rlcatalog.spaces import"
    " SpaceInfo\n",
    "catalog/src/rlcatalog/torch/engine.py": "def act(d):\n    return d.sample() or"
    " d.deterministic_sample()\n",
    "plugins/sb3/src/rlcatalog_sb3/plugin.py": "import rlcatalog_ppo.rollout\nTARGET ="
    ' "rlcatalog_sb3.net:Net"\n',
    "plugins/sb3/src/rlcatalog_sb3/net.py": "import rlcatalog_sb3.plugin\nfrom rlcatalog.spaces"
    " import SpaceInfo\n",
    "plugins/ppo/src/rlcatalog_ppo/rollout.py": "def step():\n    return 1\n",
    "plugins/ppo/src/rlcatalog_ppo/torch.py": "import rlcatalog_sb3.net\nimport"
    " rlcatalog_torch.nn\n",
    "plugins/torch/src/rlcatalog_torch/nn.py": "x = 1\n",
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def figures(checkout):
    return {measure: figure for measure, figure, _ in report(checkout)}


def test_code_lines_leave_out_comments_docstrings_and_blanks(checkout):
    by_name = {str(source.path): len(source.code_lines()) for source in read_sources(checkout)}
    assert by_name["catalog/src/rlcatalog/spaces/info.py"] == 10
    assert by_name["catalog/src/rlcatalog/__init__.py"] == 0
    assert figures(checkout)["code lines of the kernel"] == "16"
    assert figures(checkout)["code lines of its rooms that stay"] == "12"
    assert figures(checkout)["code lines of all packages"] == "25"


def test_classes_doors_and_types_are_counted(checkout):
    counted = figures(checkout)
    assert counted["classes in its rooms that stay, errors aside"] == "1"  # SpaceInfo
    assert counted["names at the kernel's doors, those of rooms that stay"] == "2"
    assert counted["names at its doors and the library's"] == "3"
    # Unused, Policy.
    assert counted["names at its doors without a user outside"] == "2, 2 beside torch and tf"
    info = next(source for source in read_sources(checkout) if source.path.name == "info.py")
    assert share_untyped([info]) == 2 / 4  # space and other, of space, name, other and count
    assert counted["copies of the acting step"] == "1; catalog/src/rlcatalog/torch/engine.py:1 act"
    assert counted["longest function"] == "3 (catalog/src/rlcatalog/spaces/info.py:13 read)"


def test_names_of_frameworks_are_counted_in_code_alone(checkout):
    path = checkout / "catalog/src/rlcatalog/spaces/names.py"
    path.write_text(
        '"""Of torch."""\nimport torch.nn\nX = {"tf": torch, "use torch": 1}  # tf\n',
        encoding="utf-8",
    )
    before = figures(checkout)["names of frameworks in its rooms that stay, in the others"]
    assert before == "3, 0"  # the import, "tf", torch


def test_imports_by_string_and_through_doors_are_seen(checkout):
    imports = Imports(checkout, read_sources(checkout))
    # A target that plugin.py declares closes no cycle with the file it names.
    assert imports.cycles() == [["rlcatalog.policy.policy", "rlcatalog.spaces.info"]]
    assert imports.upward() == ["rlcatalog.spaces.info -> rlcatalog.policy.policy"]


def test_arrows_beside_the_table_are_named(checkout):
    imports = Imports(checkout, read_sources(checkout))
    assert imports.arrows() == [
        # rlcatalog_torch it may import, for its name is torch.
        "rlcatalog_ppo.torch -> rlcatalog_sb3.net",
        "rlcatalog_sb3.plugin -> rlcatalog_ppo.rollout",
    ]


def test_lines_that_moved_are_told_from_lines_that_went(checkout):
    def git(*arguments):
        subprocess.run(["git", "-C", checkout, *arguments], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "before")
    before = read_commit(checkout, "HEAD")
    assert count_lines(before) == count_lines(read_sources(checkout)) == 25
    (checkout / "catalog/src/rlcatalog/torch/engine.py").rename(
        checkout / "plugins/torch/src/rlcatalog_torch/engine.py"
    )
    (checkout / "catalog/src/rlcatalog/policy/policy.py").write_text("x = 2\n", encoding="utf-8")
    assert compare(before, read_sources(checkout)) == {"moved": 2, "deleted": 2, "added": 1}
    assert read_commit(checkout, "no-such-commit") is None


def test_calls_of_the_checkout_s_functions_are_counted(tmp_path):
    path = tmp_path / "src/module.py"
    path.parent.mkdir()
    path.write_text(
        "def outer(): return [inner(i) for i in range(3)] + list(three())\n"
        "def inner(i): return (lambda: i)()\n"
        "def three():\n    yield 1\n    yield 2\n",
        encoding="utf-8",
    )
    names: dict = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    counted = count(tmp_path, names["outer"])
    assert counted["calls"] == 5  # outer, three times inner, three once
    # Outer, inner, lambda; before Python 3.12 the comprehension as well.
    assert counted["depth"] in (3, 4)


def test_without_an_environment_calls_are_not_counted(checkout):
    assert figures(checkout)["calls"].startswith("not counted")
