"""Registered classes, catalogs in other processes, and RLlib's interface of the catalog."""

from __future__ import annotations

import inspect
import os

import pytest

from rlcatalog import Catalog, ModelCatalog, ModelV2
from rlcatalog.catalog import pickling


class TorchNet(ModelV2):
    framework_of_class = "torch"


class TFNet(ModelV2):
    framework_of_class = "tf"


# --- registered classes ---------------------------------------------------------------------------


# --- catalogs in other processes ------------------------------------------------------------------


def restore(pickled):
    function, arguments = pickled
    return function(*arguments)


@pytest.fixture
def known_catalogs(monkeypatch):
    """The catalogs of this process by their names; without them, it acts as another process."""
    catalogs = {}
    monkeypatch.setattr(pickling, "_CATALOGS", catalogs)
    return catalogs


def test_catalog_is_restored_once_per_process():
    catalog = Catalog([], environ={})

    assert restore(catalog.pickled()) is catalog


@pytest.mark.parametrize(
    ("used", "names"),
    [
        pytest.param(None, ["one", "two"], id="all"),
        pytest.param(["two"], ["two"], id="one-of-them"),
        pytest.param([], [], id="none"),
    ],
)
def test_catalog_is_restored_in_another_process(known_catalogs, used, names):
    catalog = Catalog([], environ={"A": "b"}, prefer=["acme"])
    catalog.register_model("one", TorchNet)
    catalog.register_model("two", TorchNet)
    pickled = catalog.pickled(used)
    known_catalogs.clear()  # another process knows no catalogs yet

    restored = restore(pickled)

    assert restored is not catalog
    assert restored.environ == {"A": "b"}
    assert restored.prefer == ("acme",)
    assert [part.name for part in restored.parts()] == names


def test_restored_default_catalog_reads_its_own_environment(known_catalogs):
    catalog = Catalog()
    pickled = catalog.pickled()
    known_catalogs.clear()

    restored = restore(pickled)

    assert restored is not catalog
    assert restored.environ is os.environ


def test_restored_catalog_gains_new_parts_and_keeps_its_own(known_catalogs):
    catalog = Catalog([], environ={})
    catalog.register_model("one", TorchNet)
    pickled = catalog.pickled()
    known_catalogs.clear()  # another process knows no catalogs yet
    restored = restore(pickled)
    # Both processes go on: "one" means another class there, and "two" is new here.
    restored.register_model("one", TFNet)
    catalog.register_model("two", TorchNet)

    pickled_later = catalog.pickled()
    # The other process knows the restored catalog, and not the original one.
    known_catalogs[catalog._name] = restored

    assert restore(pickled_later) is restored
    assert restored.registry.get("model", "one").objects == {"tf": TFNet}
    assert restored.registry.get("model", "two").objects == {"torch": TorchNet}


# --- RLlib's interface and the default catalog ----------------------------------------------------


@pytest.mark.parametrize("method", ["get_preprocessor", "get_preprocessor_for_space"])
def test_model_catalog_has_rllib_signatures(method):
    signature = inspect.signature(getattr(ModelCatalog, method))

    assert signature.parameters["include_multi_binary"].default is False
