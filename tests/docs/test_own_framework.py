"""The page for authors of frameworks: its tables name all targets and all operations."""

from __future__ import annotations

import re

import framework_page
import pytest

from rlcatalog.frameworks import TensorOps, frameworks
from rlcatalog.frameworks.table import _TARGETS, FrameworkSpec

PAGE = framework_page.PAGE.read_text(encoding="utf-8")


def quoted_targets():
    """Return the targets in the first cells of the page's tables."""
    targets = []
    for line in PAGE.splitlines():
        first_cell = line.removeprefix("|").partition("|")[0]
        targets += re.findall(r'`"([\w-]+)"`', first_cell)
    return targets


def test_page_has_every_target_of_a_declaration():
    assert set(quoted_targets()) >= _TARGETS


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_page_has_every_target_that_packages_add(framework):
    assert framework in frameworks()
    added = set()
    for spec in FrameworkSpec.table.specs.values():
        if spec.extends is not None and spec.name == framework:
            added |= spec.targets.keys()
    formats = {name for name in added if name.startswith("export-")}  # the page says what they are
    assert set(quoted_targets()) >= added - formats


def test_page_has_the_current_table_of_operations():
    assert framework_page.operations_table() in PAGE


def test_table_has_all_files_that_ask_for_operations():
    assert framework_page.unlisted_files() == []


def test_operations_are_those_of_the_base_class():
    assert {"reshape", "without_gradient"} <= framework_page.OPERATIONS
    assert all(hasattr(TensorOps, name) for name in framework_page.OPERATIONS)
