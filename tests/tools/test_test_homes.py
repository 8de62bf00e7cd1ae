"""`tools/test_homes.py`: which files of `tests/` belong to one package."""

from __future__ import annotations

import pytest
import test_homes


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a kernel and two packages."""
    for module in ("catalog/src/rlcatalog", "plugins/policy/src/rlcatalog_policy",
                   "plugins/ppo/src/rlcatalog_ppo"):  # fmt: skip
        folder = tmp_path / module
        folder.mkdir(parents=True)
        (folder.parents[1] / "pyproject.toml").touch()
    return tmp_path


def check_file(checkout, *, text, folder="tests/masks"):
    path = checkout / folder / "test_x.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return list(test_homes.find_faults(checkout))


@pytest.mark.parametrize(
    ("text", "home"),
    [
        ("from rlcatalog import Catalog", "catalog/tests"),
        ("import rlcatalog\nfrom rlcatalog_ppo.config import parse", "plugins/ppo/tests"),
        ("import rlcatalog\nrlcatalog.build()", "plugins/policy/tests"),
        ("from rlcatalog import load", "plugins/policy/tests"),
        ('"""Masks.\n\nCrosses: ppo.\n"""\nimport rlcatalog_ppo', "plugins/ppo/tests"),
    ],
    ids=["kernel alone", "kernel and ppo", "build", "load", "crosses only one"],
)
def test_file_of_one_package_is_sent_to_its_tests(checkout, text, home):
    (fault,) = check_file(checkout, text=text)
    assert f"Move it to {home}," in fault


@pytest.mark.parametrize(
    "text",
    [
        "import numpy",
        "import rlcatalog_ppo\nfrom rlcatalog import build",
        '"""Masks.\n\nCrosses: policy, ppo.\n"""\nimport rlcatalog_ppo',
        '"""Masks.\n\nCrosses: all packages.\n"""\nimport rlcatalog_ppo',
    ],
    ids=["no package", "two packages", "crosses two", "crosses all"],
)
def test_file_that_crosses_packages_may_stay(checkout, text):
    assert not check_file(checkout, text=text)


def test_file_about_pages_may_stay(checkout):
    assert not check_file(checkout, text="import rlcatalog_ppo", folder="tests/docs")


def test_crossed_package_without_a_folder_is_named(checkout):
    (fault,) = check_file(checkout, text='"""Masks.\n\nCrosses: ppo, gone.\n"""')
    assert "names gone" in fault


def test_files_are_in_their_homes():
    assert test_homes.main() == 0
