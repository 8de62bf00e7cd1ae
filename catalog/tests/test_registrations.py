"""Registered classes, catalogs in other processes, and RLlib's interface of the catalog."""

from __future__ import annotations

import inspect
import os

import msgspec
import pytest

from rlcatalog import ActionDistribution, Catalog, ModelCatalog, ModelV2, Preprocessor
from rlcatalog.catalog import default, model_catalog, registrations
from rlcatalog.errors import CatalogError


class TorchNet(ModelV2):
    framework_of_class = "torch"


class TFNet(ModelV2):
    framework_of_class = "tf"


class SevenInputs(ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7


@pytest.fixture
def catalog():
    """A catalog without plugins."""
    return Catalog([], environ={})


# --- registered classes ---------------------------------------------------------------------------


def test_register_model_returns_the_class(catalog):
    assert catalog.register_model("mine", TorchNet) is TorchNet


def test_register_model_is_a_decorator_without_a_class(catalog):
    decorate = catalog.register_model("mine")

    assert decorate(TFNet) is TFNet
    assert catalog.registry.get("model", "mine").objects == {"tf": TFNet}


def test_registered_model_has_the_path_of_its_config_struct(catalog):
    fields = [("mine_width", int, 3)]
    struct = msgspec.defstruct("Keys", fields, frozen=True, kw_only=True, module="cells")

    catalog.register_model("mine", TorchNet, config=struct)

    assert catalog.registry.get("model", "mine").declaration.config == "cells:Keys"


def test_registered_model_needs_no_config_struct(catalog):
    catalog.register_model("mine", TorchNet)

    assert catalog.registry.get("model", "mine").declaration.config is None


# --- catalogs in other processes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "registered_names"),
    [
        pytest.param(None, ["one", "two"], id="all"),
        pytest.param(["two"], ["two"], id="one-of-them"),
        pytest.param([], [], id="none"),
    ],
)
def test_pickled_catalog_has_arguments_and_registered_parts(used, registered_names):
    catalog = Catalog([], environ={"A": "b"}, prefer=["acme"])
    catalog.register_model("one", TorchNet)
    catalog.register_model("two", TorchNet)

    _, (_, name, entry_points, environ, prefer, registered) = catalog.pickled(used)

    assert name == catalog._name
    assert entry_points == ()
    assert environ == {"A": "b"}
    assert prefer == ("acme",)
    assert [component.name for component, _ in registered] == registered_names


def test_pickled_default_catalog_leaves_out_the_environment():
    catalog = Catalog()
    catalog.register_model("one", TorchNet)

    _, (_, _, entry_points, environ, prefer, registered) = catalog.pickled()

    # The other process has plugins and an environment of its own.
    assert catalog.environ is os.environ
    assert entry_points is None
    assert environ is None
    assert prefer == ()
    assert [component.name for component, _ in registered] == ["one"]


def restore(pickled):
    function, arguments = pickled
    return function(*arguments)


@pytest.fixture
def another_process(monkeypatch):
    """Forget the catalogs of this process, as another process does not know them.

    Returns the names of catalogs with the catalogs that the process knows.
    """
    known_catalogs = {}
    monkeypatch.setattr(registrations, "_ALIVE", known_catalogs)
    return known_catalogs


def test_catalog_is_restored_once_per_process():
    catalog = Catalog([], environ={})

    assert restore(catalog.pickled()) is catalog


def test_catalog_is_restored_in_another_process(another_process):
    catalog = Catalog([], environ={"A": "b"}, prefer=["acme"])
    catalog.register_model("one", TorchNet)
    pickled = catalog.pickled()
    another_process.clear()

    restored = restore(pickled)

    assert restored is not catalog
    assert restored.environ == {"A": "b"}
    assert restored.prefer == ("acme",)
    assert restored._name == catalog._name
    assert restored.registry.get("model", "one").objects == {"torch": TorchNet}


def test_restored_catalog_gains_new_parts_and_keeps_its_own(another_process):
    catalog = Catalog([], environ={})
    catalog.register_model("one", TorchNet)
    pickled = catalog.pickled()
    another_process.clear()
    restored = restore(pickled)
    # Both processes go on: "one" means another class there, and "two" is new here.
    restored.register_model("one", TFNet)
    catalog.register_model("two", TorchNet)

    pickled_later = catalog.pickled()
    another_process[catalog._name] = restored

    assert restore(pickled_later) is restored
    assert restored.registry.get("model", "one").objects == {"tf": TFNet}
    assert restored.registry.get("model", "two").objects == {"torch": TorchNet}


# --- RLlib's interface and the default catalog ----------------------------------------------------


@pytest.mark.parametrize(
    ("method", "kind", "cls"),
    [
        ("register_custom_model", "model", TorchNet),
        ("register_custom_action_dist", "action_dist", SevenInputs),
        ("register_custom_preprocessor", "preprocessor", Preprocessor),
    ],
)
def test_model_catalog_registers_classes_as_rllib_does(catalog, monkeypatch, method, kind, cls):
    monkeypatch.setattr(model_catalog, "default_catalog", lambda: catalog)

    getattr(ModelCatalog, method)("mine", cls)

    assert cls in catalog.registry.get(kind, "mine").objects.values()


@pytest.mark.parametrize("method", ["get_preprocessor", "get_preprocessor_for_space"])
def test_model_catalog_has_rllib_signatures(method):
    signature = inspect.signature(getattr(ModelCatalog, method))

    assert signature.parameters["include_multi_binary"].default is False


def test_default_catalog_is_rejected_while_loading_a_plugin(monkeypatch):
    def refuse():
        raise CatalogError("a plugin is being loaded")

    monkeypatch.setattr(default, "refuse_while_loading", refuse)

    with pytest.raises(CatalogError, match="a plugin is being loaded"):
        default.default_catalog()
