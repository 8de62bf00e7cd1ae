"""Names that other packages bring to the kernel."""

import importlib
import sys

import pytest

from rlcatalog import provided
from rlcatalog.errors import MissingPluginError


@pytest.mark.parametrize("name", provided.PROVIDERS)
def test_name_is_that_of_its_module(name):
    module = importlib.import_module(provided.PROVIDERS[name].module)

    assert getattr(provided, name) is getattr(module, name)


def test_missing_package_is_named(monkeypatch):
    nowhere = provided.Provider("rlcatalog_nowhere.picture", "The picture of an explanation")
    monkeypatch.setitem(provided.PROVIDERS, "pipeline_svg", nowhere)

    problem = (
        "The picture of an explanation is provided by rlcatalog-nowhere, which is not installed"
    )
    with pytest.raises(MissingPluginError, match=problem):
        provided.pipeline_svg


def test_error_inside_a_package_stays_as_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "rlcatalog_cli.picture", None)

    with pytest.raises(ModuleNotFoundError, match=r"rlcatalog_cli\.picture"):
        provided.pipeline_svg


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        provided.unknown
