"""Registered classes: their declarations, catalogs in other processes, RLlib's interface, the
default catalog.
"""

from __future__ import annotations

import inspect
import os

import msgspec
import pytest

from rlcatalog import ActionDistribution, Catalog, ModelCatalog, ModelV2, Preprocessor
from rlcatalog.catalog import default, model_catalog, registrations
from rlcatalog.errors import CatalogError


class Torch(ModelV2):
    framework_of_class = "torch"


class Net(ModelV2):
    framework_of_class = "tf"


class Dist(ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7


@pytest.fixture
def catalog():
    return Catalog([], environ={})


# --- registered classes ---------------------------------------------------------------------------


def test_model_is_registered_with_struct_or_by_decorator(catalog):
    struct = msgspec.defstruct(
        "Keys", [("mine_width", int, 3)], frozen=True, kw_only=True, module="cells"
    )
    assert catalog.register_model("mine", Torch, config=struct) is Torch
    assert catalog.registry.get("model", "mine").declaration.config == "cells:Keys"
    assert catalog.register_model("other")(Net) is Net
    assert catalog.registry.get("model", "other").declaration.config is None
    assert catalog.registry.get("model", "other").objects == {"tf": Net}


def test_pickled_catalog_has_arguments_and_registered_parts():
    given = Catalog([], environ={"A": "b"}, prefer=["acme"])
    for name in ("one", "two"):
        given.register_model(name, Torch)

    def arguments(catalog, used=None):
        _, (_, name, points, environ, prefer, registered) = catalog.pickled(used)
        assert name == catalog._name
        return points, environ, prefer, [component.name for component, _ in registered]

    assert arguments(given) == ((), {"A": "b"}, ("acme",), ["one", "two"])
    assert arguments(given, ["two"]) == ((), {"A": "b"}, ("acme",), ["two"])
    assert arguments(given, []) == ((), {"A": "b"}, ("acme",), [])
    everything = Catalog()
    everything.register_model("one", Torch)
    assert everything.environ is os.environ
    # The other process has an environment of its own.
    assert arguments(everything) == (None, None, (), ["one"])


def test_unpickled_catalog_exists_once_and_gains_parts(monkeypatch):
    monkeypatch.setattr(registrations, "_ALIVE", {})
    given = Catalog([], environ={"A": "b"}, prefer=["acme"])
    given.register_model("one", Torch)
    restore, arguments = given.pickled()
    assert restore(*arguments) is given
    registrations._ALIVE.clear()  # as in another process
    there = restore(*arguments)
    assert there is not given
    assert (there.environ, there.prefer, there._name) == ({"A": "b"}, ("acme",), given._name)
    assert there.registry.get("model", "one").objects == {"torch": Torch}
    there.register_model("one", Net)  # which stays
    given.register_model("two", Torch)
    registrations._ALIVE[given._name] = there
    later = given.pickled()
    registrations._ALIVE[given._name] = there
    assert later[0](*later[1]) is there
    assert there.registry.get("model", "one").objects == {"tf": Net}
    assert there.registry.get("model", "two").objects == {"torch": Torch}


# --- RLlib's interface and the default catalog ----------------------------------------------------


def test_model_catalog_has_rllib_signatures(catalog, monkeypatch):
    monkeypatch.setattr(model_catalog, "default_catalog", lambda: catalog)
    for kind, cls in (("model", Torch), ("action_dist", Dist), ("preprocessor", Preprocessor)):
        getattr(ModelCatalog, f"register_custom_{kind}")("mine", cls)
        assert cls in catalog.registry.get(kind, "mine").objects.values()
    for method in (ModelCatalog.get_preprocessor, ModelCatalog.get_preprocessor_for_space):
        assert inspect.signature(method).parameters["include_multi_binary"].default is False


def test_default_catalog_is_rejected_while_loading_a_plugin(monkeypatch):
    def refuse():
        raise CatalogError("a plugin is being loaded")

    monkeypatch.setattr(default, "refuse_while_loading", refuse)
    with pytest.raises(CatalogError, match="a plugin is being loaded"):
        default.default_catalog()
