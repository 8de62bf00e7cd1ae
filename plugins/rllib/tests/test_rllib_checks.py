"""The check that this package brings to the conformance kit."""

import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import torch

from rlcatalog import Catalog, FrameworkSpec
from rlcatalog.plugins.discovery import scan
from rlcatalog_rllib.checks import rllib_moves_every_weight
from rlcatalog_testing import NotApplicable, Part, cases
from rlcatalog_torch import FullyConnectedNetwork


class Idle(FullyConnectedNetwork):
    """Has a weight that nothing is computed with."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.idle = torch.nn.Parameter(torch.ones(3))


class WithOperations(FullyConnectedNetwork):
    """Asks for something after each step, which RLlib does not do."""

    def update_ops(self):
        return [lambda: None]


@pytest.fixture(scope="module")
def catalog():
    """A catalog of these tests' own."""
    return Catalog(scan(), environ={})


def part(catalog, name, cls):
    catalog.register_model(name, cls)
    return Part(catalog.registry.get("model", name), catalog, "torch")


def test_a_weight_that_stays_is_named(catalog):
    with pytest.raises(AssertionError, match="an update does not change these weights: idle"):
        rllib_moves_every_weight(part(catalog, "idle", Idle))


@pytest.mark.parametrize("distribution", ["rlcatalog-fcnet", "rlcatalog-bounded"])
def test_parts_of_this_repository_pass(catalog, distribution):
    import ray

    running = ray.is_initialized()  # by another file's test, in the same process
    found = [
        case
        for case in cases(distribution, catalog=catalog)
        if case.check is rllib_moves_every_weight
    ]
    assert found
    for case in found:
        case()
    assert ray.is_initialized() == running, "the check starts no cluster"


def test_what_the_bridge_refuses_is_skipped_in_its_words(catalog):
    with pytest.raises(NotApplicable, match=r"update_ops\(\) must run after each optimiser step"):
        rllib_moves_every_weight(part(catalog, "operating", WithOperations))


def test_check_turns_eager_execution_on_again(catalog, monkeypatch):
    """Where RLlib is the first to import TensorFlow, it turns eager execution off."""
    pytest.importorskip("rlcatalog_tf", reason="rlcatalog-tf is not installed")
    prepared = []
    monkeypatch.setattr(FrameworkSpec, "prepare", lambda self: prepared.append(self.name))
    rllib_moves_every_weight(part(catalog, "sound", FullyConnectedNetwork))
    assert "tf" in prepared
